"""Injects faults into a job of the recovery benchmark, and measures its recovery."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.recovery.jobs import POLL_SECONDS, Job, Rank, alive
from bench.recovery.ranks import SNAPSHOT_EVERY, STEP_SECONDS

Shape = Literal["2:3", "3", "3+1"]
Action = Callable[[Job, int], None]

NODES = 3  # of a whole group
RESTART_AFTER = 2.0  # seconds until a lost node is started again
LIMIT = 120.0  # seconds without a step after which a job counts as dead


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, and the goal for kitctl's recovery time.

    Attributes:
        name: as in the table.
        shape: the job's number of nodes; behind a plus those that stand by.
        node: the target.
        inject: the fault.
        goal: kitctl's median time as a fraction of that of tuned torchrun.
        before: number of nodes before the fault.
        after: number of nodes in the end.
        restart: brings a node back after ``RESTART_AFTER`` seconds.
        repair: called after the recovery; the job may then grow to ``after`` nodes.
        measured_from: start of the recovery time: the fault, or the last step of the old ranks.
    """

    name: str
    shape: Shape = "2:3"
    node: int
    inject: Action
    goal: float
    before: int = NODES
    after: int = NODES
    restart: Action | None = None
    repair: Action | None = None
    measured_from: Literal["fault", "last step"] = "fault"

    @property
    def spares(self) -> int:
        """Nodes that stand by."""
        return int(self.shape.partition("+")[2] or 0)


FAULTS = (
    Fault(name="a rank is killed", node=1, inject=Job.kill_rank, goal=1 / 4),
    Fault(name="a node is killed", node=2, inject=Job.kill, restart=Job.start, goal=1 / 4),
    Fault(name="node 0 is killed", node=0, inject=Job.kill, restart=Job.start, goal=1 / 3),
    Fault(name="a node is drained", node=1, inject=Job.terminate, restart=Job.replace, goal=1 / 4),
    Fault(name="a node is cut off", node=2, inject=Job.disconnect, repair=Job.reconnect, goal=1 / 2),
    Fault(
        name="a node is cut off, replaced",
        node=2,
        inject=Job.disconnect,
        restart=Job.move,
        repair=Job.discard,
        goal=1 / 2,
    ),
    Fault(name="3 to 2 nodes", node=2, inject=Job.terminate, after=2, goal=1 / 4),
    Fault(name="2 to 3 nodes", node=2, inject=Job.replace, before=2, measured_from="last step", goal=1 / 4),
    Fault(name="a node is killed, fixed size", shape="3", node=2, inject=Job.kill, restart=Job.start, goal=0.65),
)

WITH_A_SPARE = (
    Fault(name="a node is killed", shape="3+1", node=2, inject=Job.kill, restart=Job.start, goal=1 / 4),
    Fault(name="a node is drained", shape="3+1", node=1, inject=Job.terminate, restart=Job.replace, goal=1 / 4),
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one fault.

    Attributes:
        rival: the system under test.
        fault: its name.
        took: seconds of the trial, including preparations.
        seconds: until the first optimizer step of new ranks; None if there was none.
        phases: seconds until all reachable old ranks had ended, and until the new rank with the first step was started,
            had imported, had joined its group, and had taken the step.
        lost: steps that had to be repeated.
        skipped: steps that no rank took.
        strays: steps of old ranks after the first step of new ranks.
        pause: seconds without a step when another node joined later; None if none did.
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


def measure(job: Job, rival: str, fault: Fault, *, start: float) -> Trial:
    """Inject a fault into a training job; ``start`` is when the preparations began."""
    time.sleep(random.uniform(0, SNAPSHOT_EVERY * STEP_SECONDS))
    old = {rank.pid for rank in job.ranks()}
    reachable = {rank.pid for rank in job.ranks() if fault.inject is not Job.disconnect or rank.node != fault.node}
    moment = time.monotonic()
    fault.inject(job, fault.node)
    first, stopped = _await_step(job, old, reachable, fault, moment)
    if first is None:
        return Trial(rival=rival, fault=fault.name, took=time.monotonic() - start)
    if fault.repair:
        fault.repair(job, fault.node)
    paused = _pause(job) if first.world < fault.after else None
    former = [rank for rank in job.ranks() if rank.pid in old and rank.steps]
    last = max(rank.last for rank in former)
    zero = moment
    if fault.measured_from == "last step":
        zero = max(step for rank in former for step in rank.steps)
    begun = first.started if first.started > moment else first.imported  # it was forked ahead
    reached = (stopped, begun, first.imported, first.joined, first.steps[0])
    return Trial(
        rival=rival,
        fault=fault.name,
        took=time.monotonic() - start,
        seconds=first.steps[0] - zero,
        phases=tuple(round(one - zero, 3) for one in reached),
        lost=max(last - first.first + 1, 0),
        skipped=max(first.first - last - 1, 0),
        strays=sum(step > first.steps[0] for rank in former for step in rank.steps),
        pause=paused,
    )


def _await_step(job: Job, old: set[int], reachable: set[int], fault: Fault, moment: float) -> tuple[Rank | None, float]:
    """Wait for a new rank's first step, and restart the node; returns the rank, and when old ranks had ended."""
    restart, stopped = fault.restart, 0.0
    while time.monotonic() < moment + LIMIT and not job.ended:
        if restart and time.monotonic() > moment + RESTART_AFTER:
            restart(job, fault.node)
            restart = None
        if not stopped and not any(alive(pid) for pid in reachable):
            stopped = time.monotonic()
        stepped = [rank for rank in job.ranks() if rank.pid not in old and rank.steps and rank.first]
        if stepped and stopped and not restart:
            return min(stepped, key=lambda rank: rank.steps[0]), stopped
        time.sleep(POLL_SECONDS)
    return None, stopped


def _pause(job: Job) -> float | None:
    """Seconds between the last step of the smaller group and the first one of the full group."""
    if not job.await_group(NODES, steps=1, limit=LIMIT):
        return None
    ranks = job.ranks()
    small = max(rank.steps[-1] for rank in ranks if rank.world < NODES and rank.steps)
    whole = min(rank.steps[0] for rank in ranks if rank.steps and rank.steps[0] > small)
    return whole - small
