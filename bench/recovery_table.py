"""The recovery benchmark's table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

from bench.measure import Result, interval, write
from bench.recovery_faults import BACK_AFTER, FAULTS, LIMIT, Fault, Trial
from bench.recovery_jobs import GROUP_TIMEOUT, RIVALS, TUNED
from bench.recovery_ranks import SNAPSHOT_EVERY, STEP_SECONDS

NOTE = f"""\
Three nodes with a rank each on gloo, each in a network namespace with an address of its own (a bridge joins them),
steps of {1000 * STEP_SECONDS:.0f} ms, a snapshot every {SNAPSHOT_EVERY} of them. Seconds from the fault to the first
optimizer step of new ranks; for "2 to 3 nodes" the pause that the running ranks see, from their last step on. Medians
with 95 % intervals. Lost nodes are there again after {BACK_AFTER:.0f} s; "cut off" is a link that goes down on the
other side, so that nobody is told: without a replacement it comes up again when the others have recovered, with one
it stays down. All but the last row may go on with two nodes (`--nodes 2:3`) and take the third in later, which costs
the pause in the last but one column. Goals are ratios to tuned. The rivals take their turns within each round, with
the same model and cadence: ours with the trainer's snapshots (synced, checksummed, fenced), torchrun with a script
that saves and renames. Tuned: `--max-restarts=1000 --monitor-interval=0.1 --rdzv-conf={TUNED}`,
`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, `TORCH_ELASTIC_WORKER_IDENTICAL=1`, a process-group timeout of {GROUP_TIMEOUT}
s, and a loop that starts it again; stock: `torchrun --max-restarts=100`, and nothing starts it again but what brings
a node back. Both are told the host, their address and `GLOO_SOCKET_IFNAME`, which ours finds out. Dead: no step
within {LIMIT:.0f} s, or every node has ended. Steps lost: taken again after the fault. The parts: stopping the old
ranks, forming a group and starting a rank, importing, joining, and restoring with the first step."""


def publish(trials: Sequence[Trial]) -> None:
    """Write what there is."""
    save = Result(
        note=f"{' '.join(NOTE.split())} {odd(trials)}",
        columns=(
            *("fault", "rival", "times", "median s", "interval s", "of tuned", "goal", "steps lost", "pause s"),
            "stop + form + import + join + step",
        ),
        rows=[row(trials, fault, rival) for fault in FAULTS for rival in RIVALS if chosen(trials, fault, rival)],
        raw=[asdict(one) for one in trials],
    )
    write("recovery", save)


def odd(trials: Sequence[Trial]) -> str:
    """What must not happen to anyone's steps, and how often it did."""
    strays = sum(one.strays or 0 for one in trials)
    skipped = sum(one.skipped or 0 for one in trials)
    return f"Steps that old ranks took once new ones had begun: {strays}; steps that nobody took: {skipped}."


def chosen(trials: Sequence[Trial], fault: Fault, rival: str) -> list[Trial]:
    """The trials of a fault and a rival."""
    return [one for one in trials if (one.fault, one.rival) == (fault.name, rival)]


def row(trials: Sequence[Trial], fault: Fault, rival: str) -> tuple[str, ...]:
    """One line of the table."""
    all_of_it = chosen(trials, fault, rival)
    alive_again = [one for one in all_of_it if one.seconds is not None]
    dead = len(all_of_it) - len(alive_again)
    times = f"{len(all_of_it)}, {dead} dead" if dead else str(len(all_of_it))
    if not alive_again:
        return fault.name, rival, times, *("-" for _ in range(7))
    seconds = seconds_of(alive_again)
    found = interval(seconds)
    tuned = seconds_of(chosen(trials, fault, "tuned torchrun"))
    pauses = [one.pause for one in alive_again if one.pause is not None]
    return (
        fault.name,
        rival,
        times,
        f"{found.median:.2f}",
        f"{found.low:.2f} to {found.high:.2f}",
        f"{found.median / statistics.median(tuned):.2f}" if tuned else "-",
        f"{fault.goal:.2f}" if rival == "kitctl" else "",
        f"{statistics.median(one.lost or 0 for one in alive_again):.0f}",
        f"{statistics.median(pauses):.2f}" if pauses else "-",
        " + ".join(f"{part:.2f}" for part in parts(alive_again)),
    )


def seconds_of(trials: Sequence[Trial]) -> list[float]:
    """How long those took that did not die."""
    return [one.seconds for one in trials if one.seconds is not None]


def parts(trials: Sequence[Trial]) -> list[float]:
    """The medians of what each phase took."""
    taken = [[b - a for a, b in pairwise((0.0, *one.phases))] for one in trials]
    return [statistics.median(part) for part in zip(*taken, strict=True)]
