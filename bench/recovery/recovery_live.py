"""How long training pauses when a rank or node is lost, and whether the others keep their processes. Needs root.

python -m bench.recovery.recovery_live --minutes 4

Three nodes in network namespaces, as in ``bench.recovery.recovery``; trials accumulate over runs, in rounds, until each
system has its TRIALS.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from bench.measure import Result, earlier, write
from bench.recovery import faults, torchft
from bench.recovery.faults import LIMIT, NODES, RESTART_AFTER, Fault
from bench.recovery.jobs import POLL_SECONDS, RIVALS, Job, Start, alive
from bench.recovery.network import Machine, Network, NetworkUnavailableError
from bench.recovery.ranks import SNAPSHOT_EVERY, STEP_SECONDS

STEADY = 20  # steps of a whole group before a fault
AFTERWARDS = 8  # steps of a rank after which its pause is over
LONGEST_STEP = 4 * STEP_SECONDS  # before a fault; no pause is shorter
START_LIMIT = 240.0  # seconds until the first group has formed


def ours_live(node: int, machine: Machine, host: Machine, nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The agent of kitctl, whose ranks live on."""
    command, env = RIVALS["kitctl"](node, machine, host, nodes, folder)
    return command, {**env, "KIT_POLICY_SURVIVORS": "live"}


@dataclass(frozen=True, kw_only=True)
class System:
    """What is compared.

    Attributes:
        start: returns the command and environment of a node.
        trials: of each fault.
        lighthouse: whether it needs one, on a machine without a fault.
    """

    start: Start
    trials: int
    lighthouse: bool = False


SYSTEMS: Mapping[str, System] = {
    "kitctl, survivors: live": System(start=ours_live, trials=20),
    "kitctl": System(start=RIVALS["kitctl"], trials=10),
    "torchft": System(start=torchft.start, trials=10, lighthouse=True),
    "tuned torchrun": System(start=RIVALS["tuned torchrun"], trials=3),
}
NAMES = ("a rank is killed", "a node is killed", "node 0 is killed", "a node is drained")
FAULTS: Mapping[str, Fault] = {one.name: one for one in faults.FAULTS if one.name in NAMES}
NOTE = f"""\
As above, `--nodes 2:3`; a node that was killed or drained is started again after {RESTART_AFTER:.0f} s.
Seconds from the last optimizer step of any rank before the fault to the next step of any rank, in which a step of
{1000 * STEP_SECONDS:.0f} ms is. Processes: how many ranks on nodes without a fault were the same ones afterwards. Goals
of ranks that live on: p50 0.2 s, p95 0.5 s. torchft: the nightly build of {torchft.VERSION}, with a lighthouse on a
machine of its own, where a replica without a heartbeat for {torchft.HEARTBEAT_MS} ms is lost (default: 5 s)."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one fault.

    Attributes:
        system: under test.
        fault: its name.
        pause: seconds; None: no step within ``LIMIT``.
        kept: ranks on other nodes that are the same processes afterwards.
        others: all ranks on other nodes.
    """

    system: str
    fault: str
    pause: float | None
    kept: int = 0
    others: int = 0


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.recovery.recovery_live", description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after the round that exceeds them; the next run continues")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the namespaces are removed on exit
    torchft.install()
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    trials = [Trial(**one) for one in earlier("recovery-live")]
    try:
        while (system := _next(trials)) and time.monotonic() < deadline:
            for trial in run_round(system):
                trials.append(trial)
                publish(trials)
                print(f"  {trial.system}, {trial.fault}: {trial.pause and f'{trial.pause:.2f} s'}", flush=True)
    except NetworkUnavailableError as error:
        sys.exit(f"bench.recovery.recovery_live: {error}")


def _next(trials: Sequence[Trial]) -> str | None:
    """The system that lacks most of its trials."""
    done = {name: min(_count(trials, name, fault) for fault in FAULTS) / SYSTEMS[name].trials for name in SYSTEMS}
    name = min(done, key=lambda one: done[one])
    return name if done[name] < 1 else None


def _count(trials: Sequence[Trial], system: str, fault: str) -> int:
    return sum((one.system, one.fault) == (system, fault) for one in trials)


def run_round(system: str) -> Iterator[Trial]:
    """Inject each fault once into one job, until it does not recover."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Network(NODES + 1) as network,
        Job(SYSTEMS[system].start, Path(scratch), network.machines, nodes="2:3") as job,
    ):
        for node in range(NODES + SYSTEMS[system].lighthouse):
            job.start(node)
        limit = START_LIMIT
        for fault in FAULTS:
            if not _await_steady(job, limit=limit):
                assert limit != START_LIMIT, f"{system} did not start: {job.log(0)}"
                return
            limit = LIMIT
            trial = measure(job, system, fault)
            yield trial
            if trial.pause is None:
                return


def measure(job: Job, system: str, fault: str) -> Trial:
    """Inject a fault into a training job."""
    node, restart = FAULTS[fault].node, FAULTS[fault].restart
    time.sleep(random.uniform(0, SNAPSHOT_EVERY * STEP_SECONDS))
    others = {rank.pid for rank in job.ranks() if rank.node != node and alive(rank.pid)}
    moment = time.monotonic()
    FAULTS[fault].inject(job, node)
    pause = None
    while pause is None or restart:
        if restart and time.monotonic() > moment + RESTART_AFTER:  # torchrun does not go on without node 0
            restart(job, node)
            restart = None
        if pause is None and (pause := pause_after(_steps(job), moment)) is not None:
            kept = sum(map(alive, others))
        if time.monotonic() > moment + LIMIT or job.ended:
            return Trial(system=system, fault=fault, pause=None)
        time.sleep(POLL_SECONDS)
    return Trial(system=system, fault=fault, pause=pause, kept=kept, others=len(others))


def pause_after(steps: Sequence[float], moment: float) -> float | None:
    """The longest time without a step of any rank around a moment; None: it is not over yet.

    Args:
        steps: when any rank took one, in seconds.
        moment: of the fault. A step that was nearly done may end after it.
    """
    times = sorted(step for step in steps if step > moment - LONGEST_STEP)
    gaps = [(after - before, at) for at, (before, after) in enumerate(pairwise(times), 1) if after > moment]
    if not gaps:
        return None
    longest, at = max(gaps)
    return longest if len(times) - at >= AFTERWARDS * NODES else None


def _steps(job: Job) -> list[float]:
    return [step for rank in job.ranks() for step in rank.steps]


def _await_steady(job: Job, *, limit: float) -> bool:
    """Wait until a whole group has taken some steps since now."""
    began = {rank.pid: len(rank.steps) for rank in job.ranks()}
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        group = [rank for rank in job.ranks() if alive(rank.pid)]
        if len(group) == NODES and all(len(rank.steps) - began.get(rank.pid, 0) >= STEADY for rank in group):
            return True
        time.sleep(POLL_SECONDS)
    return False


def publish(trials: Sequence[Trial]) -> None:
    """Write the results so far."""
    columns = ("fault", "system", "trials", "p50 s", "p95 s", "longest s", "same processes")
    rows = [row for fault in FAULTS for system in SYSTEMS if (row := _row(trials, fault, system))]
    note = " ".join(NOTE.split())
    write("recovery-live", Result(note=note, columns=columns, rows=rows, raw=[asdict(one) for one in trials]))


def _row(trials: Sequence[Trial], fault: str, system: str) -> tuple[str, ...]:
    own = [one for one in trials if (one.fault, one.system) == (fault, system)]
    found = sorted(one.pause for one in own if one.pause is not None)
    if not own:
        return ()
    dead = len(own) - len(found)
    count = f"{len(own)}, {dead} dead" if dead else f"{len(own)}"
    if not found:
        return fault, system, count, "-", "-", "-", "-"
    p95 = found[min(int(0.95 * len(found)), len(found) - 1)]
    kept = f"{sum(one.kept for one in own)} of {sum(one.others for one in own)}"
    return fault, system, count, f"{statistics.median(found):.2f}", f"{p95:.2f}", f"{found[-1]:.2f}", kept


if __name__ == "__main__":
    main()
