"""A fault on purpose to a job that trains: whom it strikes, and how the job takes it. For any target.

What lives here: what ``kitctl drill`` does with a job. What never does: printing, and how a fault is done (targets).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from kitctl import state
from kitctl.errors import ConflictError, UsageError
from kitctl.facts import JobFacts, Report
from kitctl.facts import Recovery as Details
from kitctl.faults import FAULTS, Recovery, Strike
from kitctl.targets import Target

POLL_SECONDS: Final = 0.25  # a drill is short, and what it measures is: it may ask more often than others
DETAILS_SECONDS: Final = 6.0  # somewhat more than a cluster's agents take between two reports


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What is to be struck; what is left open may be any."""

    fault: str
    rank: int | None = None
    node: int | None = None

    def strikes(self, report: Report) -> list[Strike]:
        """All that could be meant, of those that train."""
        return [
            Strike(fault=self.fault, node=int(node), rank=rank if self._by_rank else None)
            for node, place in sorted(report.nodes.items())
            for rank in range(place.ranks[0], place.ranks[1] + 1)
            if self.rank in {None, rank} and self.node in {None, int(node)}
        ]

    def check(self, report: Report) -> None:
        """See whether there is anybody to strike.

        Raises:
            UsageError: there is no such node or rank, or a fault of nodes is aimed at a rank.
        """
        if self.rank is not None and not self._by_rank:
            raise UsageError(f"{self.fault} strikes a node, not a rank", fix="name one with --node, or leave it open")
        if not self.strikes(report):
            there = f"ranks 0 to {report.world_size - 1} on nodes {', '.join(sorted(report.nodes))}"
            raise UsageError("no such node or rank trains now", fix=f"choose among {there}")

    @property
    def _by_rank(self) -> bool:
        return FAULTS[self.fault].victim == "rank"


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A job that is struck; ``timeout`` is how many seconds it has to recover."""

    target: Target
    namespace: str
    name: str
    timeout: float

    def strikes(self, aim: Aim, *, count: int, every: float, chance: Random) -> Iterator[Recovery]:
        """What comes of one strike after the other, ``every`` seconds apart; one that the job cannot take is the last.

        Raises:
            ConflictError: the job does not train any more, or the victim has gone.
        """
        due = time.time()
        for _ in range(count):
            time.sleep(max(due - time.time(), 0.0))
            recovery = self._strike(aim, chance)
            yield recovery
            if not recovery.recovered or recovery.phase in state.END_PHASES:
                return
            due = recovery.time + every

    def look(self) -> JobFacts:
        """The job, which must be one that trains.

        Raises:
            ConflictError: it does not train now, or does not tell who does.
        """
        facts = self.target.job(self.namespace, self.name)
        phase = state.derive(facts).phase
        if phase != "Running":
            fix = f"kitctl status {self.name} says what it waits for"
            raise ConflictError(f"{self.name!r} does not train now ({phase.lower()}): nothing to strike", fix=fix)
        if facts.report is None:
            fix = "let its agents report: security.reportStatus: true"
            raise ConflictError(f"{self.name!r} does not tell which rank trains where", fix=fix)
        return facts

    def _strike(self, aim: Aim, chance: Random) -> Recovery:
        """Strike once, and watch until the job has recovered, ended, or had its time."""
        before = now = self._fresh(aim)
        strike = chance.choice(aim.strikes(reported(before)))
        struck, reached = time.time(), 0
        self.target.strike(self.namespace, self.name, strike)
        while True:
            if reported(now).progress.resumed_at == reported(before).progress.resumed_at:  # it is the old ranks'
                reached = max(reached, reported(now).progress.step or 0)
            now = self.target.job(self.namespace, self.name)
            recovery = judge(strike, struck, before, now, reached)
            if recovery.recovered:
                return replace(recovery, details=self._details(before, now))
            if now.end or time.time() > struck + self.timeout:
                return recovery
            time.sleep(POLL_SECONDS)

    def _details(self, before: JobFacts, recovered: JobFacts) -> Details | None:
        """Where the time went, which is told a moment after the first step; None if it is not."""
        deadline = time.monotonic() + DETAILS_SECONDS
        report = reported(recovered)
        while report.round == reported(recovered).round and time.monotonic() < deadline:
            if report.last_recovery != reported(before).last_recovery:
                return report.last_recovery
            time.sleep(POLL_SECONDS)
            report = reported(self.target.job(self.namespace, self.name))
        return None

    def _fresh(self, aim: Aim) -> JobFacts:
        """The job once there is somebody to strike, right after it has told a step: losses are counted from there.

        Raises:
            ConflictError: it has ended, or does not come to that.
        """
        deadline = time.monotonic() + self.timeout
        first: int | None = None
        while True:
            now = self.target.job(self.namespace, self.name)
            if now.end or time.monotonic() > deadline:
                self.look()
                raise ConflictError(f"{self.name!r} takes no step there", fix=f"see kitctl logs {self.name}")
            report = reported(now)
            if state.derive(now).phase == "Running" and aim.strikes(report):
                if report.progress.step is None or (has_stepped(report) and first not in {None, report.progress.step}):
                    return now
                first = report.progress.step
            time.sleep(POLL_SECONDS)


def reported(facts: JobFacts) -> Report:
    """What its agents tell of a job, if only that they tell nothing."""
    return facts.report or Report()


def has_stepped(report: Report) -> bool:
    """Whether the progress is of the group that is there now: both times are of one node's clock."""
    return not report.forming and (report.progress.resumed_at or 0.0) >= report.formed


def judge(strike: Strike, struck: float, before: JobFacts, now: JobFacts, reached: int) -> Recovery:
    """What has come of a strike so far. Pure.

    Args:
        strike: which one.
        struck: when, in Unix seconds.
        before: the job, just before.
        now: the job.
        reached: the last step that was told of what trained before.
    """
    old, new = reported(before), reported(now)
    formed = new.formed - struck if new.round != old.round else None
    resumed = new.progress if formed is not None and has_stepped(new) else None
    phase = state.derive(now).phase
    steps = old.progress.step is not None
    well = resumed is not None if steps else formed is not None and phase == "Running"
    return Recovery(
        fault=strike.fault,
        victim=strike.victim,
        time=struck,
        formed=formed,
        first_step=resumed.resumed_at - struck if resumed and resumed.resumed_at else None,
        steps_lost=max(reached - (resumed.resumed_from or 0), 0) if resumed else None,
        restarts=state.derive(now).restarts - state.derive(before).restarts,
        phase=phase,
        recovered=well or phase == "Succeeded",
    )
