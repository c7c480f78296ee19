"""Inject faults into a running job and measure its recovery. For any target.

What lives here: the logic of ``kitctl drill``. What never does: printing, and how a fault is injected (targets).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import msgspec

from kitctl.base.errors import ConflictError, UsageError
from kitctl.state import phase as state
from kitctl.state.facts import JobFacts
from kitctl.state.faults import FAULTS, FaultInjection, FaultResult
from kitctl.targets import Target
from kitjob.report import Progress, RecoveryTimings, Report

POLL_SECONDS: Final = 0.25  # shorter than elsewhere: a drill is short, and so is what it measures
TIMINGS_SECONDS: Final = 6.0  # a little longer than the interval between two reports on a cluster


@dataclass(frozen=True, kw_only=True)
class FaultSelector:
    """A fault and its possible targets; None: any rank or node; ``lasting``: seconds, of a fault of the mirror."""

    fault: str
    rank: int | None = None
    node: int | None = None
    lasting: float | None = None

    def candidates(self, report: Report) -> list[FaultInjection]:
        """Every injection that matches, among the ranks that train, or the node that uploads."""
        uploads = {report.mirror.node} if report.mirror else set()
        return [
            FaultInjection(
                fault=self.fault, node=int(node), rank=rank if self._scope == "rank" else None, seconds=self.lasting
            )
            for node, assignment in sorted(report.nodes.items())
            for rank in range(assignment.ranks[0], assignment.ranks[1] + 1)
            if self.rank in {None, rank} and self.node in {None, int(node)}
            if self._scope != "mirror" or int(node) in uploads
        ]

    def check(self, report: Report) -> None:
        """Check that at least one target matches.

        Raises:
            UsageError: no such node or rank, or ``rank`` is set for a fault of nodes; or the job has no mirror, or no
                copies.
        """
        if self.rank is not None and self._scope != "rank":
            raise UsageError(f"{self.fault} hits a {self._scope}, not a rank", fix="leave --rank out")
        if self._scope == "mirror" and report.mirror is None:
            raise UsageError(f"{self.fault}: the job has no mirror", fix="submit it with snapshots.mirror")
        if self.fault == "damage-part" and report.copies is None:
            fix = "submit it with snapshots.storage: perNode, or memory"
            raise UsageError(f"{self.fault}: the job's snapshots have no copies on other nodes", fix=fix)
        if not self.candidates(report):
            there = f"ranks 0 to {report.world_size - 1} on nodes {', '.join(sorted(report.nodes))}"
            raise UsageError("no such node or rank is training", fix=f"choose among {there}")

    @property
    def _scope(self) -> str:
        return FAULTS[self.fault].scope


class Since(NamedTuple):
    """When a fault was injected, by the clock of this machine: in Unix seconds, and how many seconds ago."""

    time: float
    elapsed: float

    def until(self, moment: float) -> float:
        """The seconds from there to a moment by another clock; where that one differs, until it was seen here."""
        seconds = moment - self.time
        return seconds if 0 <= seconds <= self.elapsed else self.elapsed


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A job to inject faults into; ``timeout`` is the seconds it has to recover from each."""

    target: Target
    namespace: str
    name: str
    timeout: float

    def run(self, selector: FaultSelector, *, count: int, every: float, rng: Random) -> Iterator[FaultResult]:
        """Inject ``count`` faults, ``every`` seconds apart; stop at the first one that the job does not recover from.

        Raises:
            ConflictError: the job is not training any more, or the target has gone.
        """
        due = time.monotonic()
        for _ in range(count):
            time.sleep(max(due - time.monotonic(), 0.0))
            result, injected = self._inject(selector, rng)
            yield result
            if not result.recovered or result.phase in state.TERMINAL_PHASES:
                return
            due = injected + every

    def require_running(self) -> JobFacts:
        """The job.

        Raises:
            ConflictError: it is not running, or does not report which rank runs where.
        """
        facts = self.target.job(self.namespace, self.name)
        phase = state.derive(facts).phase
        if phase != "Running":
            raise ConflictError(
                f"job {self.name!r} is not running ({phase.lower()})", fix=f"kitctl status {self.name} shows why"
            )
        if facts.report is None:
            fix = "let its agents report: security.reportStatus: true"
            raise ConflictError(f"job {self.name!r} does not report which rank runs where", fix=fix)
        return facts

    def _inject(self, selector: FaultSelector, rng: Random) -> tuple[FaultResult, float]:
        """Inject one fault, and watch until the job has recovered or ended, or the timeout is over.

        Returns:
            the result, and when the fault was injected, in monotonic seconds.
        """
        before = self._await_step(selector)
        injection = rng.choice(selector.candidates(report_of(before)))
        injected_at, injected = time.time(), time.monotonic()
        self.target.inject_fault(self.namespace, self.name, injection)
        watch = self._watch_mirror if injection.seconds is not None else self._watch_ranks
        return watch(injection, injected_at, injected, before), injected

    def _watch_mirror(
        self, injection: FaultInjection, injected_at: float, injected: float, before: JobFacts
    ) -> FaultResult:
        told: float | None = None
        newest: int | None = None  # snapshot that was published until the store was back
        while True:
            now = self.target.job(self.namespace, self.name)
            since = Since(injected_at, time.monotonic() - injected)
            if told is None and (mirror := report_of(now).mirror) and mirror.warning:
                told = since.elapsed
            if newest is None and since.elapsed > (injection.seconds or 0.0):
                newest = report_of(now).progress.snapshot_step or 0
            result = assess_mirror(injection, since, before, now, told, newest)
            over = (injection.seconds or 0.0) + self.timeout
            if result.recovered or now.result or since.elapsed > over:
                return result
            time.sleep(POLL_SECONDS)

    def _watch_ranks(
        self, injection: FaultInjection, injected_at: float, injected: float, before: JobFacts
    ) -> FaultResult:
        now, last_step = before, 0
        while True:
            if report_of(now).progress.resumed_at == report_of(before).progress.resumed_at:  # from the old ranks
                last_step = max(last_step, report_of(now).progress.step or 0)
            now = self.target.job(self.namespace, self.name)
            since = Since(injected_at, time.monotonic() - injected)
            result = assess(injection, since, before, now, last_step)
            if result.recovered:
                settled, timings = self._settled(before, now)
                lost = assess(injection, since, before, settled, last_step).steps_lost
                return msgspec.structs.replace(result, timings=timings, steps_lost=lost)
            if now.result or time.monotonic() > injected + self.timeout:
                return result
            time.sleep(POLL_SECONDS)

    def _settled(self, before: JobFacts, recovered: JobFacts) -> tuple[JobFacts, RecoveryTimings | None]:
        """The job once the parts of the recovery are known, and where a script's own loop resumed: a moment later.

        Returns:
            the job, in the same group, and the parts; None if they are not reported.
        """
        deadline, now = time.monotonic() + TIMINGS_SECONDS, recovered
        while time.monotonic() < deadline:
            report = report_of(now)
            timings = report.last_recovery if report.last_recovery != report_of(before).last_recovery else None
            placed = report.progress.resumed_from is not None or not report.progress.of_own_loop
            if timings and (placed or now.result):
                return now, timings
            time.sleep(POLL_SECONDS)
            later = self.target.job(self.namespace, self.name)
            if report_of(later).round != report_of(recovered).round:
                return now, timings
            now = later
        return now, timings

    def _await_step(self, selector: FaultSelector) -> JobFacts:
        """The job once a target is training, right after a reported step: lost steps are counted from there.

        Raises:
            ConflictError: the job has ended, or took no step within the timeout.
        """
        deadline = time.monotonic() + self.timeout
        first: int | None = None
        while True:
            now = self.target.job(self.namespace, self.name)
            if now.result or time.monotonic() > deadline:
                self.require_running()
                raise ConflictError(
                    f"job {self.name!r}: no training step within --timeout", fix=f"see kitctl logs {self.name}"
                )
            report = report_of(now)
            if state.derive(now).phase == "Running" and selector.candidates(report):
                if report.progress.step is None or (has_stepped(report) and first not in {None, report.progress.step}):
                    return now
                first = report.progress.step
            time.sleep(POLL_SECONDS)


def report_of(facts: JobFacts) -> Report:
    """The report of a job's agents; an empty one if there is none."""
    return facts.report or Report()


def has_stepped(report: Report) -> bool:
    """Whether the progress is that of the current group; both times are by one node's clock."""
    return not report.forming and (report.progress.resumed_at or 0.0) >= report.formed


def assess(injection: FaultInjection, since: Since, before: JobFacts, now: JobFacts, last_step: int) -> FaultResult:
    """The result of a fault so far. Pure.

    Args:
        injection: the fault.
        since: when.
        before: the job, just before.
        now: the job.
        last_step: the last step that was reported by the ranks from before the fault.
    """
    old, new = report_of(before), report_of(now)
    formed = since.until(new.formed) if new.round != old.round else None
    started = new.progress.resumed_at != old.progress.resumed_at  # that of the old ranks stays until they step
    resumed = new.progress if formed is not None and started and has_stepped(new) else None
    phase = state.derive(now).phase
    steps = old.progress.step is not None
    training = resumed is not None if steps else formed is not None and phase == "Running"
    return FaultResult(
        fault=injection.fault,
        target=injection.target,
        time=since.time,
        formed=formed,
        first_step=since.until(resumed.resumed_at) if resumed and resumed.resumed_at else None,
        steps_lost=_steps_lost(old.progress, resumed, last_step) if resumed else None,
        restarts=state.derive(now).restarts - state.derive(before).restarts,
        phase=phase,
        recovered=training or phase == "Succeeded",
    )


def assess_mirror(
    injection: FaultInjection, since: Since, before: JobFacts, now: JobFacts, told: float | None, newest: int | None
) -> FaultResult:
    """The result of a fault of the mirror so far. Pure.

    Args:
        injection: the fault.
        since: when.
        before: the job, just before.
        now: the job.
        told: the seconds until the job's status told it first.
        newest: the step of the snapshot that was the newest when the store was back; None: it is not.
    """
    old, new, phase = report_of(before), report_of(now), state.derive(now).phase
    mirror = new.mirror
    has_all = bool(newest is not None and mirror and (mirror.step or 0) >= newest and not mirror.warning)
    stepped = (new.progress.step or 0) > (old.progress.step or 0)
    return FaultResult(
        fault=injection.fault,
        target=injection.target,
        time=since.time,
        steps_lost=0 if new.round == old.round else None,
        restarts=state.derive(now).restarts - state.derive(before).restarts,
        told=told,
        caught_up=since.elapsed - (injection.seconds or 0.0) if has_all else None,
        phase=phase,
        recovered=has_all and phase in {"Running", "Succeeded"} and stepped,
    )


def _steps_lost(before: Progress, resumed: Progress, last_step: int) -> int | None:
    """The steps that are taken again; None while it is not known. Those of an own loop count from its last start."""
    if not resumed.of_own_loop:
        return max(last_step - (resumed.resumed_from or 0), 0)
    if resumed.resumed_from is None:
        return None
    return max((before.resumed_from or 0) + last_step - resumed.resumed_from, 0)
