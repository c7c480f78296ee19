"""The trials of the recovery benchmark on the cluster, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.measure import Result, interval, write
from bench.recovery.jobs import GROUP_TIMEOUT, TUNED
from bench.recovery.ranks import SNAPSHOT_EVERY, STEP_SECONDS

OURS = "kitctl"
NOTE = f"""\
Three pods with one rank each on gloo, on the three workers of the test cluster; steps of {1000 * STEP_SECONDS:.0f}
ms, a snapshot every {SNAPSHOT_EVERY} steps. Seconds from the fault to the first optimizer step of new ranks: of all
three, or, of jobs that may go on with two (`--nodes 2:3`), after a machine was lost. The agent is killed: SIGKILL to
node 1's agent and its ranks. The pod is deleted: as by a drain, with 30 s of grace. The machine is lost: the link to
its pod goes down on the other side, so that no connection is closed. A job gets the first two faults in turn, in an
order that alternates; controllers wait longer after each. "Not in place": `KIT_RESTART_IN_PLACE=0`, which is kitctl
without the pod supervisor. torchrun runs a script that saves and renames, in pods that kitctl rendered, with
`--max-restarts=1000 --monitor-interval=0.1 --rdzv-conf={TUNED}`, `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`,
`TORCH_ELASTIC_WORKER_IDENTICAL=1` and a process-group timeout of {GROUP_TIMEOUT} s: in an Indexed Job whose container
restarts it in a loop, and in a JobSet and a PyTorchJob with `restartPolicy: OnFailure`. Medians with 95 % intervals;
the systems alternate within each round. Dead: no step within 240 s."""

SPARE_NOTE = """\
As above, with a fixed size of three nodes. Spare: `--nodes 3+1`, four pods on three workers; it stands by before each
fault. No grace: `kubectl delete pod --grace-period=0 --force`, so that the processes are killed once kubelet knows."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one fault.

    Attributes:
        system: under test.
        fault: its name.
        seconds: until the first optimizer step of new ranks; None if there was none.
        lost: steps that had to be repeated.
        world: the number of new ranks.
    """

    system: str
    fault: str
    seconds: float | None = None
    lost: int | None = None
    world: int | None = None


def publish(table: str, trials: Sequence[Trial], faults: Sequence[str], systems: Sequence[str]) -> None:
    """Write the results so far."""
    cells = [(fault, system) for fault in faults for system in systems if chosen(trials, fault, system)]
    result = Result(
        note=" ".join((NOTE if table == "cluster-recovery" else SPARE_NOTE).split()),
        columns=("fault", "system", "trials", "median s", "interval s", "/ kitctl", "steps lost"),
        rows=[row(trials, fault, system) for fault, system in cells],
        raw=[asdict(one) for one in trials],
    )
    write(table, result)


def chosen(trials: Sequence[Trial], fault: str, system: str) -> list[Trial]:
    """The trials of a fault and a system."""
    return [one for one in trials if (one.fault, one.system) == (fault, system)]


def row(trials: Sequence[Trial], fault: str, system: str) -> tuple[str, ...]:
    """One row of the table."""
    own = chosen(trials, fault, system)
    seconds = seconds_of(own)
    dead = len(own) - len(seconds)
    times = f"{len(own)}, {dead} dead" if dead else str(len(own))
    if not seconds:
        return fault, system, times, "-", "-", "-", "-"
    found = interval(seconds)
    ours = seconds_of(chosen(trials, fault, OURS))
    return (
        fault,
        system,
        times,
        f"{found.median:.1f}",
        f"{found.low:.1f} to {found.high:.1f}",
        f"{found.median / statistics.median(ours):.1f}" if ours else "-",
        f"{statistics.median(one.lost or 0 for one in own if one.seconds is not None):.0f}",
    )


def seconds_of(trials: Sequence[Trial]) -> list[float]:
    """The times of trials that recovered."""
    return [one.seconds for one in trials if one.seconds is not None]
