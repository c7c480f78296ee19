"""Random faults in one job: one after the other, over each other, while a round forms, while a snapshot is published.

For any target; ``Place`` is what it takes of one. A fault is due at a step of the job, not at a time: so all of them
strike before it ends, however fast the machine is.
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

from kitctl.drill import FaultSelector, report_of
from kitctl.errors import ConflictError, TargetError
from kitctl.facts import JobFacts, Report
from kitctl.faults import FaultInjection
from kitctl.targets import Target
from kitctl.view.columns import columns
from kittrain.snapshots.snapshot import SCRATCH

PATIENCE: Final = 240.0  # seconds for whatever is waited for; far more than it takes
OVERLAP: Final = 0.25  # how many of the faults strike before the job has recovered from the one before

IN_THE_MIDDLE: Final = "in the middle"  # of what a fault was to interrupt

# Runs beside the agent of rank 0: kills that rank, or the agent, while a snapshot is half published.
MID_PUBLISH: Final = f"""
import os, signal, sys, time
from pathlib import Path
from kittrain import fault_injection
folder, scratch, victim = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
agent = int(os.environ.get("AGENT") or fault_injection.agent_here())
pid = agent if victim == "agent" else fault_injection.rank_of(agent, 0)
before, end = set(folder.glob(scratch)), time.monotonic() + 20
while not (begun := set(folder.glob(scratch)) - before) and time.monotonic() < end:
    time.sleep(0.0002)
print("{IN_THE_MIDDLE}" if begun else "before one began", flush=True)
os.kill(pid, signal.SIGKILL)
"""


class Place(Protocol):
    """A job, and what only its target knows of it."""

    namespace: str
    name: str
    snapshots: Path
    """As this machine sees them; in ``record`` within it the ranks write down their steps."""
    folder: str
    """The same, as nodes see it."""

    @property
    def target(self) -> Target:
        """Where it runs."""

    def python(self, node: int, *arguments: str) -> str:
        """What a node's Python prints, run beside its agent, whose process id is AGENT, or whom nobody can mistake."""


class Steps:
    """How far the ranks are, in their own words (``toy --record``); reads only what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.newest = (0, 0)  # generation and step

    def look(self) -> None:
        """Read what they have written since; several threads may."""
        for path in self._folder.glob("*.jsonl"):
            begin = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = begin + len(whole + newline)
            for told in map(json.loads, whole.splitlines()):
                self.newest = max(self.newest, (told["generation"], told["step"]))


@dataclass(frozen=True, kw_only=True)
class Event:
    """A fault that was done; ``seconds`` until later ranks had taken a step, or None where nobody waited for that."""

    kind: str
    what: str
    step: int
    seconds: float | None


class Chaos:
    """A job that is struck again and again."""

    def __init__(self, place: Place, chance: Random) -> None:
        self.place = place
        self.chance = chance
        self.events: list[Event] = []
        self._steps = Steps(place.snapshots / "record")
        self._next_look = 0.0
        self._refusal: Exception | None = None

    def run(self, kinds: Mapping[str, Kind], *, faults: int, steps: int) -> None:
        """Do so many faults, spread over a job of so many steps; each kind as often as the others, in any order."""
        schedule = (self.chance.sample([*kinds], len(kinds)) * faults)[:faults]
        self.chance.shuffle(schedule)
        overlaps = False
        for number, kind in enumerate(schedule):
            if not overlaps:
                self.until_step(steps * (number + 1) // (faults + 2))
            (generation, step), began = self._steps.newest, time.monotonic()
            what = kinds[kind](self)
            overlaps = self.chance.random() < OVERLAP
            if not overlaps:
                self.until(lambda before=generation: self._steps.newest[0] > before)  # type: ignore[misc]
            seconds = None if overlaps else time.monotonic() - began
            self.events.append(Event(kind=kind, what=what, step=step, seconds=seconds))

    def until_step(self, step: int) -> None:
        """Wait until the job has come so far."""
        self.until(lambda: self._steps.newest[1] >= step)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds of the job, which must not end before."""
        end = time.monotonic() + PATIENCE
        while not self._holds(condition):
            if time.monotonic() > self._next_look:
                facts = self.facts()
                known = f"{facts}\nlast refusal: {self._refusal}\n{self.table()}"
                assert not facts.result, f"it has ended: {known}"
                assert time.monotonic() < end, f"not within {PATIENCE:g} s: {known}"
                self._next_look = time.monotonic() + 1.0
            time.sleep(0.05)

    def _holds(self, condition: Callable[[], object]) -> bool:
        self._steps.look()
        return bool(condition())

    def facts(self) -> JobFacts:
        """What is known about the job."""
        return self.place.target.job(self.place.namespace, self.place.name)

    def report(self) -> Report:
        """What its agents tell."""
        return report_of(self.facts())

    def strike(self, fault: str, *, node: int | None = None) -> str:
        """Strike somebody, as soon as that can be done; whom, in words."""
        struck: list[FaultInjection] = []

        def done() -> bool:
            try:
                aimed = self.chance.choice(FaultSelector(fault=fault, node=node).candidates(self.report()))
                self.place.target.inject_fault(self.place.namespace, self.place.name, aimed)
            except (ConflictError, TargetError, IndexError) as error:
                self._refusal = error
                return False  # it is on its way out, or not yet in
            struck.append(aimed)
            return True

        self.until(done)
        return struck[0].target

    def leader(self) -> int:
        """The node of rank 0."""
        return next(int(node) for node, place in self.report().nodes.items() if place.group_rank == 0)

    def table(self) -> str:
        """What has happened."""
        rows = [
            (str(number), str(event.step), event.kind, event.what, f"{event.seconds:.1f} s" if event.seconds else "-")
            for number, event in enumerate(self.events, 1)
        ]
        return "\n".join(columns(("", "STEP", "FAULT", "STRUCK", "NEXT STEP AFTER"), rows))


Kind: TypeAlias = Callable[[Chaos], str]


def two_at_once(chaos: Chaos) -> str:
    """Two of the nodes."""
    nodes = chaos.chance.sample(sorted(chaos.report().nodes), 2)
    faults = chaos.chance.choices(["kill-rank", "kill-agent", "preempt"], k=2)
    with ThreadPoolExecutor() as pool:
        struck = pool.map(lambda fault, node: chaos.strike(fault, node=int(node)), faults, nodes)
    return ", ".join(f"{fault} {victim}" for fault, victim in zip(faults, struck, strict=True))


def while_a_round_forms(chaos: Chaos) -> str:
    """So few nodes are left that the rest has to wait for others; meanwhile the one that leads goes as well."""
    report, leader = chaos.report(), chaos.leader()
    others = sorted({int(node) for node in report.nodes} - {leader})
    for node in others:
        chaos.strike("kill-node", node=node)
    chaos.until(lambda: chaos.report().forming or chaos.report().round != report.round)
    when = IN_THE_MIDDLE if chaos.report().forming else "after it had formed"
    chaos.strike("kill-agent", node=leader)
    return f"nodes {', '.join(map(str, others))}, then {leader} {when}"


def while_a_snapshot_is_published(chaos: Chaos) -> str:
    """Rank 0, which publishes it, or its agent."""
    victim, told = chaos.chance.choice(["rank", "agent"]), []

    def done() -> bool:
        arguments = (chaos.place.folder, f"{SCRATCH}*", victim)
        try:
            told.append(chaos.place.python(chaos.leader(), "-P", "-c", MID_PUBLISH, *arguments))
        except (ConflictError, TargetError, StopIteration):
            return False
        return bool(told[-1])

    chaos.until(done)
    return f"{victim} of rank 0, {told[-1]}"


# What may happen to any job; each strikes one of those that train.
KINDS: Final[Mapping[str, Kind]] = {
    "rank killed": lambda chaos: chaos.strike("kill-rank"),
    "agent killed": lambda chaos: chaos.strike("kill-agent"),
    "node lost": lambda chaos: chaos.strike("kill-node"),
    "node preempted": lambda chaos: chaos.strike("preempt"),
    "node 0 lost": lambda chaos: chaos.strike("kill-node", node=0),
    "two at once": two_at_once,
    "while a round forms": while_a_round_forms,
    "during a publish": while_a_snapshot_is_published,
}
