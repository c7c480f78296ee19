"""What to do next, from what is wanted and what is true. Pure: the supervisor asks, and acts on the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kitctl import names
from kitctl.facts import Termination
from kitctl.quantity import seconds
from kitctl.spec import JobSpec
from kitctl.targets.local.records import End, Exited, Started, Wanted

# What an agent's end means: the same table that manifests give to Kubernetes (podFailurePolicy).
# Everything else (retryable, a code that is not in it, a signal) is a node that was lost.
_CODES = names.EXIT_CODES["IndexedJob"]
OUTCOMES = {_CODES["done"]: "done", _CODES["drained"]: "drained", _CODES["fatal"]: "fatal"}
BACKOFF_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)  # before the next start, by losses in a row


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What is true of a node now."""

    index: int
    alive: bool
    attempts: int = 0
    losses: int = 0
    losses_in_a_row: int = 0
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
        """When it ended; 0 if its shim could not say."""
        return self.exited.time if self.exited else 0.0


@dataclass(frozen=True)
class Start:
    """Start a node."""

    index: int


@dataclass(frozen=True)
class Stop:
    """Send a node SIGTERM: it drains. ``hard``: SIGKILL to all of it, its grace is over."""

    index: int
    hard: bool = False


@dataclass(frozen=True)
class Finish:
    """Write down how the job ended."""

    end: End


Action: TypeAlias = Start | Stop | Finish


def reconcile(spec: JobSpec, wanted: Wanted, nodes: list[Observed], now: float, created: float) -> list[Action]:
    """The actions that bring what is true nearer to what is wanted; empty when there is nothing to do but wait."""
    verdict = _verdict(spec, wanted, nodes, now, created)
    if verdict or wanted.suspended:
        alive = [node for node in nodes if node.alive]
        stops = _stops(spec, alive, now)
        return [Finish(verdict)] if verdict and not alive else stops
    return _keep(spec, wanted, nodes, now)


def _verdict(spec: JobSpec, wanted: Wanted, nodes: list[Observed], now: float, created: float) -> End | None:
    """How the job ends, if it does."""
    if wanted.cancelled:
        return End(phase="Cancelled", time=now)
    if failure := _failure(spec, wanted, nodes, now - created):
        return End(phase="Failed", time=now, failure=failure)
    return End(phase="Succeeded", time=now) if _succeeded(spec, wanted, nodes) else None


def _failure(spec: JobSpec, wanted: Wanted, nodes: list[Observed], age: float) -> Termination | None:
    """Why the job has failed, if it has."""
    if fatal := [node for node in nodes if node.outcome == "fatal" and not _renewed(node, wanted)]:
        return _first_failure(fatal)
    if spec.policy.deadline and age > seconds(spec.policy.deadline):
        return _own("DeadlineExceeded", f"ran longer than {spec.policy.deadline}")
    if sum(node.losses for node in nodes) > spec.policy.backoff_limit:
        last = max(nodes, key=lambda node: node.ended if node.losses else 0.0)
        what = f"more than {spec.policy.backoff_limit} nodes were lost; the last, node {last.index}, {describe(last)}"
        return _own("BackoffLimitExceeded", what)
    return None


def _succeeded(spec: JobSpec, wanted: Wanted, nodes: list[Observed]) -> bool:
    """Whether every node is done; of an elastic job those that took part to the end, who was lost is not missed."""
    done = [node for node in nodes if _settled(node, wanted)]
    everyone = all(node in done for node in nodes[: wanted.nodes])
    return everyone or (spec.elastic and bool(done) and not any(node.alive for node in nodes))


def _keep(spec: JobSpec, wanted: Wanted, nodes: list[Observed], now: float) -> list[Action]:
    """Start who is missing, stop who is too many or outdated."""
    finishing = spec.elastic and any(_settled(node, wanted) for node in nodes)
    outdated = [node for node in nodes if node.alive and (node.index >= wanted.nodes or _renewed(node, wanted))]
    missing = [
        node
        for node in nodes
        if node.index < wanted.nodes and not node.alive and not _settled(node, wanted) and not finishing
    ]
    due = [node for node in missing if now >= node.ended + pause(node)]
    return [*_stops(spec, outdated, now), *(Start(node.index) for node in due)]


def outcome(exited: Exited | None) -> str:
    """What an end means: done, drained, fatal, or lost (retryable, a signal, an unknown code, no trace at all)."""
    return "lost" if exited is None or exited.code is None else OUTCOMES.get(exited.code, "lost")


def pause(node: Observed) -> float:
    """Seconds between a node's end and its next start; a node that drained comes back at once."""
    if node.outcome != "lost":
        return 0.0
    return BACKOFF_SECONDS[min(node.losses_in_a_row, len(BACKOFF_SECONDS) - 1)]


def describe(node: Observed) -> str:
    """How a node ended, in a few words."""
    if node.termination and node.termination.reason:
        return node.termination.reason
    if node.exited is None:
        return "was killed together with its shim"
    return f"was killed by signal {node.exited.signal}" if node.exited.signal else f"exited with {node.exited.code}"


def _stops(spec: JobSpec, nodes: list[Observed], now: float) -> list[Action]:
    """SIGTERM once; SIGKILL when the grace period is over."""
    fresh = [Stop(node.index) for node in nodes if node.stopping_since is None]
    late = [
        Stop(node.index, hard=True)
        for node in nodes
        if node.stopping_since is not None and now - node.stopping_since > spec.grace_seconds
    ]
    return [*fresh, *late]


def _settled(node: Observed, wanted: Wanted) -> bool:
    """Whether a node's work is done, and nobody asked for it to be done again."""
    return node.outcome == "done" and not _renewed(node, wanted)


def _renewed(node: Observed, wanted: Wanted) -> bool:
    """Whether ``restart`` was asked for after this node was started."""
    return node.started is not None and node.started.restarts < wanted.restarts


def _first_failure(fatal: list[Observed]) -> Termination:
    """The failure that came first: later ones are mostly its consequences."""
    told = [node.termination for node in fatal if node.termination]
    return min(told, key=lambda termination: termination.time, default=_own("Fatal", describe(fatal[0])))


def _own(error: str, reason: str) -> Termination:
    return Termination(outcome="fatal", reason=reason, error=error)
