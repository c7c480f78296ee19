"""What is done to a job of the recovery benchmark, and what is seen of its recovery."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.recovery_jobs import POLL_SECONDS, Job, Rank, alive
from bench.recovery_ranks import SNAPSHOT_EVERY, STEP_SECONDS

Shape = Literal["2:3", "3"]
Act = Callable[[Job, int], None]

NODES = 3  # of a whole group
BACK_AFTER = 2.0  # seconds until a lost node is there again
LIMIT = 120.0  # seconds after which a job that takes no step counts as dead


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done to which node of a job, and the most that ours may take, as a part of what tuned torchrun takes.

    Attributes:
        name: as in the table.
        shape: how many nodes the job asks for.
        node: to which it is done.
        strike: the fault.
        goal: a ratio.
        before: nodes that run when it strikes.
        after: nodes that run in the end.
        back: brings a node back after ``BACK_AFTER`` seconds.
        healed: done when the job has recovered; it takes in one more node then, if ``after`` is more.
        seen: from when on the recovery counts: the fault, or the running ranks' last step before their pause.
    """

    name: str
    shape: Shape = "2:3"
    node: int
    strike: Act
    goal: float
    before: int = NODES
    after: int = NODES
    back: Act | None = None
    healed: Act | None = None
    seen: Literal["fault", "last step"] = "fault"


FAULTS = (
    Fault(name="a rank is killed", node=1, strike=Job.kill_rank, goal=1 / 4),
    Fault(name="a node is killed", node=2, strike=Job.kill, back=Job.start, goal=1 / 4),
    Fault(name="node 0 is killed", node=0, strike=Job.kill, back=Job.start, goal=1 / 3),
    Fault(name="a node is told to leave", node=1, strike=Job.terminate, back=Job.replace, goal=1 / 4),
    Fault(name="a node is cut off", node=2, strike=Job.cut, healed=Job.mend, goal=1 / 2),
    Fault(name="a node is cut off, replaced", node=2, strike=Job.cut, back=Job.move, healed=Job.discard, goal=1 / 2),
    Fault(name="3 to 2 nodes", node=2, strike=Job.terminate, after=2, goal=1 / 4),
    Fault(name="2 to 3 nodes", node=2, strike=Job.replace, before=2, seen="last step", goal=1 / 4),
    Fault(name="a node is killed, fixed size", shape="3", node=2, strike=Job.kill, back=Job.start, goal=0.65),
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One fault's outcome.

    Attributes:
        rival: whose job.
        fault: its name.
        took: seconds of measuring, with what it takes to get there.
        seconds: until the first optimizer step of new ranks; None if there was none.
        phases: seconds until all old ranks were gone that could be told, the rank that stepped first was started, had
            imported, had joined its group, and had stepped.
        lost: steps that had to be taken again.
        skipped: steps that nobody took.
        strays: steps of old ranks after the first one of new ranks.
        pause: seconds without a step when one more node was taken in later; None if none was.
    """

    rival: str
    fault: str
    took: float
    seconds: float | None = None
    phases: tuple[float, ...] = ()
    lost: int | None = None
    skipped: int | None = None
    strays: int | None = None
    pause: float | None = None


def suffer(job: Job, rival: str, fault: Fault, *, began: float) -> Trial:
    """Do one fault to a job that trains; ``began`` is when the preparations did."""
    time.sleep(random.uniform(0, SNAPSHOT_EVERY * STEP_SECONDS))
    old = {rank.pid for rank in job.ranks()}
    told = {rank.pid for rank in job.ranks() if fault.strike is not Job.cut or rank.node != fault.node}
    moment = time.monotonic()
    fault.strike(job, fault.node)
    first, stopped = _await_step(job, old, told, fault, moment)
    if first is None:
        return Trial(rival=rival, fault=fault.name, took=time.monotonic() - began)
    if fault.healed:
        fault.healed(job, fault.node)
    paused = _pause(job) if first.world < fault.after else None
    former = [rank for rank in job.ranks() if rank.pid in old and rank.steps]
    last = max(rank.last for rank in former)
    zero = moment
    if fault.seen == "last step":
        zero = max(step for rank in former for step in rank.steps)
    reached = (stopped, first.started, first.imported, first.joined, first.steps[0])
    return Trial(
        rival=rival,
        fault=fault.name,
        took=time.monotonic() - began,
        seconds=first.steps[0] - zero,
        phases=tuple(round(one - zero, 3) for one in reached),
        lost=max(last - first.first + 1, 0),
        skipped=max(first.first - last - 1, 0),
        strays=sum(step > first.steps[0] for rank in former for step in rank.steps),
        pause=paused,
    )


def _await_step(job: Job, old: set[int], told: set[int], fault: Fault, moment: float) -> tuple[Rank | None, float]:
    """The new rank that steps first, and when no rank was left that could be told; meanwhile a node is brought back."""
    back, stopped = fault.back, 0.0
    while time.monotonic() < moment + LIMIT and not job.ended:
        if back and time.monotonic() > moment + BACK_AFTER:
            back(job, fault.node)
            back = None
        if not stopped and not any(alive(pid) for pid in told):
            stopped = time.monotonic()
        stepped = [rank for rank in job.ranks() if rank.pid not in old and rank.steps and rank.first]
        if stepped and stopped and not back:
            return min(stepped, key=lambda rank: rank.steps[0]), stopped
        time.sleep(POLL_SECONDS)
    return None, stopped


def _pause(job: Job) -> float | None:
    """Seconds between the last step of the smaller group and the first of the whole one."""
    if not job.await_group(NODES, steps=1, limit=LIMIT):
        return None
    ranks = job.ranks()
    small = max(rank.steps[-1] for rank in ranks if rank.world < NODES and rank.steps)
    whole = min(rank.steps[0] for rank in ranks if rank.steps and rank.steps[0] > small)
    return whole - small
