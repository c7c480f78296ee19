"""From a fault to the next optimizer step, on three local nodes: ours beside torchrun as it is and as it can be tuned.

python -m bench.recovery --rounds 2

Rounds add up over runs: each one puts every rival through every fault once. Without --rounds it fills up to TRIALS.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from bench.measure import RESULTS, Result, interval, save
from bench.recovery_jobs import NODES, POLL_SECONDS, RIVALS, Job, Rank, alive
from bench.recovery_ranks import SNAPSHOT_EVERY, STEP_SECONDS

Shape = Literal["2:3", "3"]

STEADY = 20  # steps that a whole group has taken before a fault
BACK_AFTER = 2.0  # seconds until a lost node is there again
LIMIT = 90.0  # seconds after which a job that takes no step counts as dead
START_LIMIT = 240.0  # seconds for a first group, on a machine that does other things too
TRIALS: Mapping[str, int] = {"kitctl": 10, "tuned torchrun": 10, "stock torchrun": 3}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done to which node of a job, and the most that ours may take, as a part of what tuned torchrun takes."""

    name: str
    shape: Shape
    node: int
    strike: Callable[[Job, int], None]
    goal: float


FAULTS = (
    Fault(name="a rank is killed", shape="2:3", node=1, strike=Job.kill_rank, goal=1 / 4),
    Fault(name="a node is killed", shape="2:3", node=2, strike=Job.kill, goal=1 / 4),
    Fault(name="node 0 is killed", shape="2:3", node=0, strike=Job.kill, goal=1 / 3),
    Fault(name="a node is told to leave", shape="2:3", node=1, strike=Job.terminate, goal=1 / 4),
    Fault(name="a node is killed, fixed size", shape="3", node=2, strike=Job.kill, goal=0.65),
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One fault's outcome.

    Attributes:
        rival: whose job.
        fault: its name.
        seconds: from the fault to the first optimizer step of new ranks; None if there was none.
        phases: seconds from the fault until all old ranks were gone, the rank that stepped first was started, had
            imported, had joined its group, and had stepped.
        lost: steps that were taken before the fault and had to be taken again.
        pause: seconds without a step when the node that came back was taken in; None if that was the recovery.
    """

    rival: str
    fault: str
    seconds: float | None
    phases: tuple[float, ...] = ()
    lost: int | None = None
    pause: float | None = None


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, help="at most so many of them in this run")
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS), help="whom to measure")
    args = parser.parse_args()
    trials = earlier()
    done = 0
    while (missing := [rival for rival in args.rivals if count(trials, rival) < TRIALS[rival]]) and done != args.rounds:
        for rival in missing:
            for shape in ("2:3", "3"):
                for trial in suffer(rival, shape):
                    print(f"  {trial.rival}, {trial.fault}: {trial.seconds and round(trial.seconds, 2)}", flush=True)
                    trials.append(trial)
        done += 1
        publish(trials)


def earlier() -> list[Trial]:
    """The trials of earlier runs."""
    path = RESULTS / "recovery.json"
    return [Trial(**one) for one in json.loads(path.read_text(encoding="utf-8"))["raw"]] if path.exists() else []


def count(trials: list[Trial], rival: str) -> int:
    """How often a rival has gone through all faults."""
    return min(sum((one.rival, one.fault) == (rival, fault.name) for one in trials) for fault in FAULTS)


def suffer(rival: str, shape: str) -> Iterator[Trial]:
    """Put one job through the faults of its shape, and a new one where it dies of one."""
    faults = [fault for fault in FAULTS if fault.shape == shape]
    while faults:
        with tempfile.TemporaryDirectory() as folder, Job(RIVALS[rival], Path(folder), nodes=shape) as job:
            started = job.await_group(len(NODES), steps=STEADY, limit=START_LIMIT)
            assert started, f"{rival} does not start: {(Path(folder) / 'node-0.log').read_text(encoding='utf-8')}"
            while faults:
                fault = faults.pop(0)
                yield trial(job, rival, fault)
                if faults and not job.await_group(len(NODES), steps=STEADY, limit=LIMIT):
                    break


def trial(job: Job, rival: str, fault: Fault) -> Trial:
    """Do one fault to a job that trains."""
    time.sleep(random.uniform(0, SNAPSHOT_EVERY * STEP_SECONDS))
    before = job.ranks()
    moment = time.monotonic()
    fault.strike(job, fault.node)
    old = {rank.pid for rank in before}
    first, stopped = await_step(job, old, fault, moment)
    if first is None:
        return Trial(rival=rival, fault=fault.name, seconds=None)
    reached = (stopped, first.started, first.imported, first.joined, first.steps[0])
    last = max(rank.last for rank in job.ranks() if rank.pid in old)
    return Trial(
        rival=rival,
        fault=fault.name,
        seconds=first.steps[0] - moment,
        phases=tuple(round(one - moment, 3) for one in reached),
        lost=max(last - first.first + 1, 0),
        pause=pause(job) if first.world < len(NODES) else None,
    )


def await_step(job: Job, old: set[int], fault: Fault, moment: float) -> tuple[Rank | None, float]:
    """The new rank that steps first, and when no old rank was left; a lost node is replaced on the way."""
    back = fault.strike is Job.kill_rank
    stopped = 0.0
    while time.monotonic() < moment + LIMIT:
        if not back and time.monotonic() > moment + BACK_AFTER:
            back = True
            job.replace(fault.node)
        if not stopped and not any(alive(pid) for pid in old):
            stopped = time.monotonic()
        stepped = [rank for rank in job.ranks() if rank.pid not in old and rank.steps and rank.first]
        if stepped and back:
            return min(stepped, key=lambda rank: rank.steps[0]), stopped
        time.sleep(POLL_SECONDS)
    return None, stopped


def pause(job: Job) -> float | None:
    """Seconds between the last step of the smaller group and the first of the whole one."""
    if not job.await_group(len(NODES), steps=1, limit=LIMIT):
        return None
    ranks = job.ranks()
    small = max(rank.steps[-1] for rank in ranks if rank.world < len(NODES) and rank.steps)
    whole = min(rank.steps[0] for rank in ranks if rank.steps and rank.steps[0] > small)
    return whole - small


def publish(trials: list[Trial]) -> None:
    """Write what there is."""
    save(
        "recovery",
        Result(
            note="Three local nodes with a rank each on gloo, steps of 50 ms, a snapshot every 10 of them. Seconds "
            "from the fault to the first optimizer step of new ranks: medians with 95 % intervals. Lost nodes are "
            f"there again after {BACK_AFTER:.0f} s; all but the last row may go on with two nodes (`--nodes 2:3`) and "
            "take the third in later, which costs the pause in the last column. The rivals take their turns within "
            "each round. Tuned: torchrun with all its knobs, in a loop that starts it again; stock: "
            f"`torchrun --max-restarts=100`; dead: no step within {LIMIT:.0f} s. Steps lost: taken again after the "
            "fault. Its parts: stopping the old ranks, forming a group and starting a rank, importing, joining, and "
            "restoring with the first step.",
            columns=(
                *("fault", "rival", "times", "median s", "interval s", "of tuned", "goal", "steps lost", "pause s"),
                "stop + form + import + join + step",
            ),
            rows=[row(trials, fault, rival) for fault in FAULTS for rival in RIVALS if chosen(trials, fault, rival)],
            raw=[asdict(one) for one in trials],
        ),
    )


def chosen(trials: list[Trial], fault: Fault, rival: str) -> list[Trial]:
    """The trials of a fault and a rival."""
    return [one for one in trials if (one.fault, one.rival) == (fault.name, rival)]


def row(trials: list[Trial], fault: Fault, rival: str) -> tuple[str, ...]:
    """One line of the table."""
    all_of_it = chosen(trials, fault, rival)
    alive_again = [one for one in all_of_it if one.seconds is not None]
    dead = len(all_of_it) - len(alive_again)
    times = f"{len(all_of_it)}, {dead} dead" if dead else str(len(all_of_it))
    if not alive_again:
        return fault.name, rival, times, *("-" for _ in range(7))
    seconds = [one.seconds for one in alive_again if one.seconds is not None]
    found = interval(seconds)
    tuned = [one.seconds for one in chosen(trials, fault, "tuned torchrun") if one.seconds is not None]
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


def parts(trials: list[Trial]) -> list[float]:
    """The medians of what each phase took."""
    taken = [[b - a for a, b in pairwise((0.0, *one.phases))] for one in trials]
    return [statistics.median(part) for part in zip(*taken, strict=True)]


if __name__ == "__main__":
    main()
