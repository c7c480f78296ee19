"""Inject random faults into one job: in sequence, overlapping, while a round forms, and while a snapshot is published.

For any target that implements ``ChaosJob``. Faults are scheduled by step, not by time, so that all of them are
injected before the job ends, however fast the machine is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Protocol, TypeAlias

from kitctl.api.drill import FaultSelector, report_of
from kitctl.base.errors import ConflictError, TargetError
from kitctl.output.view.columns import columns
from kitctl.state.facts import JobFacts
from kitctl.state.faults import FaultInjection
from kitctl.targets import Target
from kitjob.report import Report
from kittrain.rank.snapshots.folder.snapshot import SCRATCH

TIMEOUT: Final = 240.0  # seconds for each wait; far more than needed
OVERLAP: Final = 0.25  # share of the faults that are injected before the job has recovered from the previous one

IN_THE_MIDDLE: Final = "in the middle"  # of the operation that the fault interrupts

# Runs on the node of rank 0: kills that rank, or the agent, while a snapshot is half published.
MID_PUBLISH: Final = f"""
import os, signal, sys, time
from pathlib import Path
from kittrain.agent import fault_injection
folder, scratch, process = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
agent = int(os.environ.get("AGENT") or fault_injection.agent_here())
pid = agent if process == "agent" else fault_injection.rank_of(agent, 0)
before, end = set(folder.glob(scratch)), time.monotonic() + 20
while not (started := set(folder.glob(scratch)) - before) and time.monotonic() < end:
    time.sleep(0.0002)
print("{IN_THE_MIDDLE}" if started else "before one began", flush=True)
os.kill(pid, signal.SIGKILL)
"""


class ChaosJob(Protocol):
    """A job, and the operations that depend on its target."""

    namespace: str
    name: str
    snapshots: Path
    """The path on this machine; the ranks record their steps in its subfolder ``record``."""
    folder: str
    """The path of the same folder on the nodes."""

    @property
    def target(self) -> Target:
        """The target that it runs on."""

    def python(self, node: int, *arguments: str) -> str:
        """Run Python on a node; returns its output. AGENT is the agent's process id, unless the node has only one."""


class Steps:
    """The newest step that the ranks recorded (``toy --record``). Reads only what was appended since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.newest = (0, 0)  # generation and step

    def update(self) -> None:
        """Read new records. Thread-safe."""
        for path in self._folder.glob("*.jsonl"):
            begin = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = begin + len(whole + newline)
            for record in map(json.loads, whole.splitlines()):
                self.newest = max(self.newest, (record["generation"], record["step"]))


@dataclass(frozen=True, kw_only=True)
class Event:
    """An injected fault; ``seconds`` until the next generation took a step, None if another fault overlapped."""

    scenario: str
    what: str
    step: int
    seconds: float | None


class Chaos:
    """Injects faults into one job, and records them."""

    def __init__(self, job: ChaosJob, rng: Random) -> None:
        self.job = job
        self.rng = rng
        self.events: list[Event] = []
        self._steps = Steps(job.snapshots / "record")
        self._next_check = 0.0
        self._last_error: Exception | None = None

    def run(self, scenarios: Mapping[str, Scenario], *, faults: int, steps: int) -> None:
        """Inject faults, evenly spread over the job's steps; all scenarios equally often, in random order."""
        schedule = (self.rng.sample([*scenarios], len(scenarios)) * faults)[:faults]
        self.rng.shuffle(schedule)
        overlaps = False
        for number, scenario in enumerate(schedule):
            if not overlaps:
                self.until_step(steps * (number + 1) // (faults + 2))
            (generation, step), began = self._steps.newest, time.monotonic()
            what = scenarios[scenario](self)
            overlaps = self.rng.random() < OVERLAP
            if not overlaps:
                self.until(lambda before=generation: self._steps.newest[0] > before)  # type: ignore[misc]
            seconds = None if overlaps else time.monotonic() - began
            self.events.append(Event(scenario=scenario, what=what, step=step, seconds=seconds))

    def until_step(self, step: int) -> None:
        """Wait until the job has reached a step."""
        self.until(lambda: self._steps.newest[1] >= step)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; the job must not end before."""
        end = time.monotonic() + TIMEOUT
        while not self._holds(condition):
            if time.monotonic() > self._next_check:
                facts = self.facts()
                details = f"{facts}\nlast error: {self._last_error}\n{self.table()}"
                assert not facts.result, f"the job has ended: {details}"
                assert time.monotonic() < end, f"not within {TIMEOUT:g} s: {details}"
                self._next_check = time.monotonic() + 1.0
            time.sleep(0.05)

    def _holds(self, condition: Callable[[], object]) -> bool:
        self._steps.update()
        return bool(condition())

    def facts(self) -> JobFacts:
        """The job's current facts."""
        return self.job.target.job(self.job.namespace, self.job.name)

    def report(self) -> Report:
        """The agents' report."""
        return report_of(self.facts())

    def inject(self, fault: str, *, node: int | None = None) -> str:
        """Inject a fault as soon as a target is available; returns the target."""
        injected: list[FaultInjection] = []

        def done() -> bool:
            try:
                injection = self.rng.choice(FaultSelector(fault=fault, node=node).candidates(self.report()))
                self.job.target.inject_fault(self.job.namespace, self.job.name, injection)
            except (ConflictError, TargetError, IndexError) as error:
                self._last_error = error
                return False  # the target is terminating, or has not joined yet
            injected.append(injection)
            return True

        self.until(done)
        return injected[0].target

    def leader(self) -> int:
        """The node of rank 0."""
        return next(int(node) for node, assignment in self.report().nodes.items() if assignment.group_rank == 0)

    def table(self) -> str:
        """The injected faults, one per row."""
        rows = [
            (
                str(number),
                str(event.step),
                event.scenario,
                event.what,
                f"{event.seconds:.1f} s" if event.seconds else "-",
            )
            for number, event in enumerate(self.events, 1)
        ]
        return "\n".join(columns(("", "STEP", "FAULT", "TARGET", "NEXT STEP AFTER"), rows))


Scenario: TypeAlias = Callable[[Chaos], str]


def two_at_once(chaos: Chaos) -> str:
    """Two nodes at the same time."""
    nodes = chaos.rng.sample(sorted(chaos.report().nodes), 2)
    faults = chaos.rng.choices(["kill-rank", "kill-agent", "preempt"], k=2)
    with ThreadPoolExecutor() as pool:
        targets = pool.map(lambda fault, node: chaos.inject(fault, node=int(node)), faults, nodes)
    return ", ".join(f"{fault} {target}" for fault, target in zip(faults, targets, strict=True))


def while_a_round_forms(chaos: Chaos) -> str:
    """Leave too few nodes for a round; while the rest waits for others, kill the agent of rank 0's node, too."""
    report, leader = chaos.report(), chaos.leader()
    others = sorted({int(node) for node in report.nodes} - {leader})
    for node in others:
        chaos.inject("kill-node", node=node)
    chaos.until(lambda: chaos.report().forming or chaos.report().round != report.round)
    when = IN_THE_MIDDLE if chaos.report().forming else "after it had formed"
    chaos.inject("kill-agent", node=leader)
    return f"nodes {', '.join(map(str, others))}, then {leader} {when}"


def while_a_snapshot_is_published(chaos: Chaos) -> str:
    """Kill rank 0, which publishes the snapshot, or its agent."""
    process, outputs = chaos.rng.choice(["rank", "agent"]), []

    def done() -> bool:
        arguments = (chaos.job.folder, f"{SCRATCH}*", process)
        try:
            outputs.append(chaos.job.python(chaos.leader(), "-P", "-c", MID_PUBLISH, *arguments))
        except (ConflictError, TargetError, StopIteration):
            return False
        return bool(outputs[-1])

    chaos.until(done)
    return f"{process} of rank 0, {outputs[-1]}"


# Scenarios for any job; each hits processes that train.
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "rank killed": lambda chaos: chaos.inject("kill-rank"),
    "agent killed": lambda chaos: chaos.inject("kill-agent"),
    "node lost": lambda chaos: chaos.inject("kill-node"),
    "node preempted": lambda chaos: chaos.inject("preempt"),
    "node 0 lost": lambda chaos: chaos.inject("kill-node", node=0),
    "two at once": two_at_once,
    "while a round forms": while_a_round_forms,
    "during a publish": while_a_snapshot_is_published,
}
