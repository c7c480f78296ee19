"""The recovery benchmark's table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, pairwise

from bench.measure import Result, earlier_rows, interval, write
from bench.recovery.faults import FAULTS, LIMIT, RESTART_AFTER, WITH_A_SPARE, Fault, Trial
from bench.recovery.jobs import GROUP_TIMEOUT, RIVALS, TUNED
from bench.recovery.ranks import SNAPSHOT_EVERY, STEP_SECONDS

NOTE = f"""\
Three nodes with one rank each on gloo, each in a network namespace with its own address (connected by a bridge);
steps of {1000 * STEP_SECONDS:.0f} ms, a snapshot every {SNAPSHOT_EVERY} steps. Seconds from the fault to the first
optimizer step of new ranks; for "2 to 3 nodes", the pause of the running ranks, from their last step on. Medians with
95 % intervals. Lost nodes are started again after {RESTART_AFTER:.0f} s. "Cut off": the node's link goes down on the
other side, so that no connection is closed; without a replacement it comes up again after the others have recovered.
All but the last fault allow two nodes (`--nodes 2:3`); the third one joins later, which costs the pause in the last
column but one. Goals are ratios to tuned torchrun. The systems alternate within each round, with the same model and
the same steps between snapshots: kitctl with the trainer's snapshots (synced, checksummed, fenced), torchrun with a
script that saves and renames. "Own loop" is the same loop in the script, with the trainer's `Run` around it; "plain
script" is torchrun's script, unchanged, under kitctl's agents. Tuned: `--max-restarts=1000 --monitor-interval=0.1
--rdzv-conf={TUNED}`, `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, `TORCH_ELASTIC_WORKER_IDENTICAL=1`, a process-group
timeout of {GROUP_TIMEOUT} s, and a loop that restarts it; stock: `torchrun --max-restarts=100`, restarted only with its
node. Both are given the host, their address and `GLOO_SOCKET_IFNAME`, which kitctl detects. Dead: no step within
{LIMIT:.0f} s, or all nodes have ended. Steps lost: repeated after the fault. The phases: stop of the old ranks,
formation of a group and start of a rank, imports, joining, and restore with the first step; a rank that was forked
ahead of the fault has no imports of its own."""
EARLIER = " *"
TUNED = "tuned torchrun"
MEDIAN = 3  # the column of a row
OLDER = "Rows with a star are of an earlier run."
SPARE_NOTE = """\
As above, with a fixed size of three nodes and a fourth one that stands by: `--nodes 3+1`; of torchrun a fourth agent,
which waits at its rendezvous."""
TABLES: Mapping[str, tuple[str, Sequence[Fault]]] = {
    "recovery": (NOTE, FAULTS),
    "recovery-spare": (SPARE_NOTE, WITH_A_SPARE),
}


def publish(table: str, trials: Sequence[Trial]) -> None:
    """Write the results so far."""
    note, faults = TABLES[table]
    before = earlier_rows(table)
    rows = [
        found
        for fault in faults
        for rival in RIVALS
        if (found := row(trials, fault, rival, kept(before, fault, TUNED)) or kept(before, fault, rival))
    ]
    older = any(EARLIER in found[2] for found in rows)
    save = Result(
        note=" ".join((*note.split(), invalid_steps(trials), *([OLDER] if older else ()))),
        columns=(
            *("fault", "system", "trials", "median s", "interval s", "/ tuned", "goal", "steps lost", "pause s"),
            "stop + form + import + join + step",
        ),
        rows=rows,
        raw=[asdict(one) for one in trials],
    )
    write(table, save)


def kept(rows: Sequence[tuple[str, ...]], fault: Fault, rival: str) -> tuple[str, ...]:
    """The row that is there, of a run whose trials are not on this machine; empty if there is none."""
    for name, system, times, *rest in rows:
        if (name, system) == (fault.name, rival):
            return name, system, f"{times.removesuffix(EARLIER)}{EARLIER}", *rest
    return ()


def invalid_steps(trials: Sequence[Trial]) -> str:
    """The number of steps that must not have happened, or must have."""
    strays = sum(one.strays or 0 for one in trials)
    skipped = sum(one.skipped or 0 for one in trials)
    return f"Steps of old ranks after the first one of new ranks: {strays}; steps that were skipped: {skipped}."


def chosen(trials: Sequence[Trial], fault: Fault, rival: str) -> list[Trial]:
    """The trials of a fault and a rival."""
    return [one for one in trials if (one.fault, one.rival) == (fault.name, rival)]


def row(trials: Sequence[Trial], fault: Fault, rival: str, tuned: Sequence[str] = ()) -> tuple[str, ...]:
    """One row of the table; empty without trials.

    Args:
        trials: of all rivals.
        fault: which.
        rival: whose.
        tuned: the row of an earlier run to compare with, if the trials have none.
    """
    own = chosen(trials, fault, rival)
    if not own:
        return ()
    recovered = [one for one in own if one.seconds is not None]
    dead = len(own) - len(recovered)
    times = f"{len(own)}, {dead} dead" if dead else str(len(own))
    if not recovered:
        return fault.name, rival, times, *("-" for _ in range(7))
    seconds = seconds_of(recovered)
    found = interval(seconds)
    theirs = seconds_of(chosen(trials, fault, TUNED))
    theirs = theirs or [float(one) for one in tuned[MEDIAN : MEDIAN + 1] if one != "-"]
    pauses = [one.pause for one in recovered if one.pause is not None]
    return (
        fault.name,
        rival,
        times,
        f"{found.median:.2f}",
        f"{found.low:.2f} to {found.high:.2f}",
        f"{found.median / statistics.median(theirs):.2f}" if theirs else "-",
        f"{fault.goal:.2f}" if rival == "kitctl" else "",
        f"{statistics.median(one.lost or 0 for one in recovered):.0f}",
        f"{statistics.median(pauses):.2f}" if pauses else "-",
        " + ".join(f"{part:.2f}" for part in parts(recovered)),
    )


def seconds_of(trials: Sequence[Trial]) -> list[float]:
    """The times of trials that recovered."""
    return [one.seconds for one in trials if one.seconds is not None]


def parts(trials: Sequence[Trial]) -> list[float]:
    """The median duration of each phase; one that ended before the last one, such as an early import, took none."""
    taken = [[b - a for a, b in pairwise(accumulate((0.0, *one.phases), max))] for one in trials]
    return [statistics.median(part) for part in zip(*taken, strict=True)]
