"""Decides what to do next, from the desired and the observed state. Pure: the supervisor acts on the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kitctl.base.quantity import pluralize
from kitctl.spec.job_spec import JobSpec
from kitctl.state.last_words import ended_with
from kitctl.targets.local.records import Desired, Exited, Result, Started
from kitjob.durations import seconds
from kitjob.names import EXIT_CODES
from kitjob.report import Termination

# The same exit codes as in the manifests' podFailurePolicy.
# Any other end (retryable, an unknown code, a signal) counts as a lost node.
_CODES = EXIT_CODES
OUTCOMES = {_CODES["done"]: "done", _CODES["drained"]: "drained", _CODES["fatal"]: "fatal"}
STARTS = 5  # in a row that end in an error before the agent can say why: one more would end so, too
BACKOFF_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0)  # before the next start, by consecutive losses; a pod's agent waits alike


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The observed state of a node.

    Attributes:
        consecutive_losses: soon after a start, up to now.
        failed_starts: those of them that ended with an exit code of no agent, and with no message.
        said: the last of these, at the end of its log.
    """

    index: int
    alive: bool
    attempts: int = 0
    losses: int = 0
    consecutive_losses: int = 0
    failed_starts: int = 0
    said: str = ""
    started: Started | None = None
    exited: Exited | None = None
    termination: Termination | None = None
    stopping_since: float | None = None

    @property
    def outcome(self) -> str:
        """done, drained, fatal or lost; empty while it runs or if it never ran."""
        return "" if self.alive or not self.attempts else outcome(self.exited)

    @property
    def ended(self) -> float:
        """When it ended; 0 if its shim did not record it."""
        return self.exited.time if self.exited else 0.0


@dataclass(frozen=True)
class Start:
    """Start a node."""

    index: int


@dataclass(frozen=True)
class Stop:
    """Send SIGTERM to a node, which drains; ``hard``: SIGKILL to its process group after the grace period."""

    index: int
    hard: bool = False


@dataclass(frozen=True)
class Finish:
    """Record the job's result."""

    result: Result


Action: TypeAlias = Start | Stop | Finish


def reconcile(spec: JobSpec, desired: Desired, nodes: list[Observed], now: float, created: float) -> list[Action]:
    """The actions that bring the observed state closer to the desired one; empty: wait."""
    result = _result(spec, desired, nodes, now, created)
    if result or desired.suspended:
        alive = [node for node in nodes if node.alive]
        stops = _stops(spec, alive, now)
        return [Finish(result)] if result and not alive else stops
    return _converge(spec, desired, nodes, now)


def _result(spec: JobSpec, desired: Desired, nodes: list[Observed], now: float, created: float) -> Result | None:
    """The job's result, if it ends now."""
    if desired.cancelled:
        return Result(phase="Cancelled", time=now)
    if failure := _failure(spec, desired, nodes, now - created):
        return Result(phase="Failed", time=now, failure=failure)
    return Result(phase="Succeeded", time=now) if _succeeded(spec, desired, nodes) else None


def _failure(spec: JobSpec, desired: Desired, nodes: list[Observed], age: float) -> Termination | None:
    """Why the job has failed, if it has."""
    if fatal := [node for node in nodes if node.outcome == "fatal" and not _is_outdated(node, desired)]:
        return _first_failure(fatal)
    if spec.policy.deadline and age > seconds(spec.policy.deadline):
        return _failed("DeadlineExceeded", f"ran longer than {spec.policy.deadline}")
    if never := next((node for node in nodes if node.failed_starts >= STARTS), None):
        often = f"started {never.failed_starts} times in a row"
        return _failed("StartError", f"node {never.index}: {describe(never)}; {often}")
    if sum(node.losses for node in nodes) > spec.policy.backoff_limit:
        last = max(nodes, key=lambda node: node.ended if node.losses else 0.0)
        limit = spec.policy.backoff_limit
        lost = f"{pluralize(limit, 'node')} {'was' if limit == 1 else 'were'} lost"
        return _failed("BackoffLimitExceeded", f"more than {lost}; the last, node {last.index}, {describe(last)}")
    return None


def _succeeded(spec: JobSpec, desired: Desired, nodes: list[Observed]) -> bool:
    """Whether every node is done; of a job that may lack nodes those that ran to the end: lost ones do not count."""
    done = [node for node in nodes if _is_done(node, desired)]
    all_done = all(node in done for node in nodes[: desired.nodes])
    return all_done or (spec.may_lack_nodes and bool(done) and not any(node.alive for node in nodes))


def _converge(spec: JobSpec, desired: Desired, nodes: list[Observed], now: float) -> list[Action]:
    """Start missing nodes, stop surplus and outdated ones."""
    finishing = spec.may_lack_nodes and any(_is_done(node, desired) for node in nodes)
    outdated = [node for node in nodes if node.alive and (node.index >= desired.nodes or _is_outdated(node, desired))]
    missing = [
        node
        for node in nodes
        if node.index < desired.nodes and not node.alive and not _is_done(node, desired) and not finishing
    ]
    due = [node for node in missing if not 0 <= now - node.ended < pause(node)]  # the clock may have been set back
    return [*_stops(spec, outdated, now), *(Start(node.index) for node in due)]


def failed_to_start(exited: Exited | None, termination: Termination | None) -> bool:
    """Whether a process ended by itself, with an exit code that no agent has, and without a message."""
    return bool(exited and exited.code is not None and exited.code not in _CODES.values() and not termination)


def outcome(exited: Exited | None) -> str:
    """The outcome of an exit: done, drained, fatal, or lost (retryable, a signal, an unknown code, no record)."""
    return "lost" if exited is None or exited.code is None else OUTCOMES.get(exited.code, "lost")


def pause(node: Observed) -> float:
    """Seconds between a node's end and its next start; a drained node restarts at once."""
    if node.outcome != "lost":
        return 0.0
    return BACKOFF_SECONDS[min(node.consecutive_losses, len(BACKOFF_SECONDS) - 1)]


def describe(node: Observed) -> str:
    """How a node ended, in a few words."""
    told = node.termination.reason if node.termination else ""
    if node.exited and node.exited.signal:  # what its agent has told is a failure that the job had not recovered from
        return f"was killed by signal {node.exited.signal}" + (f" after: {told}" if told else "")
    if told:
        return told
    if node.exited and node.exited.code is not None:
        return ended_with(node.exited.code, node.said)
    return "was killed together with its shim"


def _stops(spec: JobSpec, nodes: list[Observed], now: float) -> list[Action]:
    """SIGTERM once; SIGKILL after the grace period."""
    fresh = [Stop(node.index) for node in nodes if node.stopping_since is None]
    late = [
        Stop(node.index, hard=True)
        for node in nodes
        if node.stopping_since is not None and now - node.stopping_since > spec.grace_seconds
    ]
    return [*fresh, *late]


def _is_done(node: Observed, desired: Desired) -> bool:
    """Whether a node is done, and no restart was requested since."""
    return node.outcome == "done" and not _is_outdated(node, desired)


def _is_outdated(node: Observed, desired: Desired) -> bool:
    """Whether a restart was requested after this node was started."""
    return node.started is not None and node.started.restarts < desired.restarts


def _first_failure(fatal: list[Observed]) -> Termination:
    """The earliest failure: later ones are mostly its consequences."""
    terminations = [node.termination for node in fatal if node.termination]
    return min(terminations, key=lambda termination: termination.time, default=_failed("Fatal", describe(fatal[0])))


def _failed(error: str, reason: str) -> Termination:
    return Termination(outcome="fatal", reason=reason, error=error)
