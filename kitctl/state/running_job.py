"""Checks of an existing job, based on the facts from its target. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from kitctl.base.errors import ConflictError, KitError, NotFound
from kitctl.state.checks import Check, CheckWarning, Finding, run_checks
from kitctl.state.facts import JobFacts
from kitctl.state.phase import JobState, NodeState, derive
from kitctl.state.why.explain import Explanation, advice, explain
from kitctl.state.why.repeats import says, shorter

MARGIN: Final = 2.0  # a grace period should be this many times longer than the last snapshot took
MAX_NAMED_NODES: Final = 3  # the others are counted


def check_job(facts: JobFacts, now: float) -> Iterator[Finding]:
    """Check a job; returns all findings. ``now`` is in Unix seconds."""
    job = derive(facts)
    why = explain(job, now)
    checks: list[tuple[str, Check]] = [("phase", partial(_phase, job, why)), ("restarts", partial(_restarts, job))]
    if not job.finished:
        checks[1:1] = [("nodes", partial(_nodes, job, why))]
        checks += [("progress", partial(_progress, facts, job))]
    return run_checks([*checks, ("grace period", partial(_grace, facts))])


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """A rank, and the node that it is on."""

    rank: int
    node: int


def place_of(facts: JobFacts, rank: int) -> RankPlace:
    """Where a rank is.

    Raises:
        ConflictError: the job does not report which rank runs where.
        NotFound: there is no such rank.
    """
    if not (facts.report and facts.report.nodes):
        fix = f"kitctl status {facts.name}; agents report with security.reportStatus: true"
        raise ConflictError(f"job {facts.name!r} does not report which rank runs where (yet)", fix=fix)
    (node,) = nodes_of(facts, frozenset({rank}))
    return RankPlace(rank=rank, node=node)


def nodes_of(facts: JobFacts, ranks: frozenset[int]) -> frozenset[int]:
    """The nodes that ranks are on; empty: of all ranks, or of a job that does not report which rank runs where.

    Raises:
        NotFound: there is no such rank.
    """
    if not (ranks and facts.report and facts.report.nodes):
        return frozenset()
    found = {
        rank: int(node)
        for node, one in facts.report.nodes.items()
        for rank in range(one.ranks[0], one.ranks[1] + 1)
        if rank in ranks
    }
    if absent := sorted(ranks - found.keys()):
        there = max(one.ranks[1] for one in facts.report.nodes.values())
        raise NotFound(f"job {facts.name!r} has no rank {absent[0]}", fix=f"choose among ranks 0 to {there}")
    return frozenset(found.values())


def not_running(facts: JobFacts) -> ConflictError:
    """The error for a job of which no node runs."""
    phase = derive(facts).phase.lower()
    return ConflictError(f"no node of job {facts.name!r} runs ({phase})", fix=f"kitctl status {facts.name} shows why")


def _phase(job: JobState, why: Explanation) -> str:
    phase = job.phase.lower()
    what = f"{phase}: {why.headline}" if why.headline else f"{phase}; {why.note}" if why.note else phase
    if job.phase == "Failed":
        how = shorter(job.reason, why.cause)
        raise KitError(what + (f" ({how})" if how else ""), fix=advice(job, why), then=why.then)
    if why.headline or job.phase in {"Cancelled", "Suspended"}:
        raise CheckWarning(what, fix=why.fix, then=why.then)
    return what


def _nodes(job: JobState, why: Explanation) -> str:
    missing = [node for node in job.nodes if node.state in {"Lost", "Failed", "Pending"}]
    if missing and not job.finished and job.phase != "Suspended":
        named = missing[:MAX_NAMED_NODES]
        reasons = "; ".join(f"node {node.index}: {_reason(node, why)}" for node in named)
        more = f"; and {len(missing) - len(named)} more" if len(missing) > len(named) else ""
        raise CheckWarning(f"{len(missing)} of {len(job.nodes)} do not run: {reasons}{more}")
    return f"{job.ready_nodes} of {len(job.nodes)} run"


def _reason(node: NodeState, why: Explanation) -> str:
    return node.state.lower() if not node.reason or says(why.cause, node.reason) else node.reason


def _restarts(job: JobState) -> str:
    if not job.restarts:
        return "none"
    fix = f"kitctl logs {job.name} --include restart"
    worst = max(job.nodes, key=lambda node: node.restarts)
    if not worst.restarts:
        raise CheckWarning(f"{job.restarts} of the ranks, none of a node", fix=fix)
    what = f"{job.restarts}, most of them ({worst.restarts}) of node {worst.index}"
    raise CheckWarning(what + (f" on {worst.host}" if worst.host else ""), fix=fix)


def _progress(facts: JobFacts, job: JobState) -> str:
    if job.standstill:
        raise CheckWarning(f"it stands still after step {job.progress.step}" if job.progress.step else "no step")
    if facts.unreported:
        raise CheckWarning("it cannot report: status shows no steps and ranks")
    if not facts.reports:
        raise CheckWarning("it cannot report: status shows no steps and ranks", fix="grant the right to create roles")
    if job.progress.step is None:
        return "no step yet"
    if job.progress.of_own_loop:
        return f"step {job.progress.step} since the ranks started, in a loop of the script's own"
    if facts.snapshots and job.progress.snapshot_step is None:
        raise CheckWarning(
            f"step {job.progress.step}, and no snapshot yet", fix="snapshot more often: --snapshot-every"
        )
    return f"step {job.progress.step}, the last snapshot is of step {job.progress.snapshot_step}"


def _grace(facts: JobFacts) -> str:
    """Whether the grace period is long enough for a step and a snapshot."""
    progress = facts.report.progress if facts.report else None
    if progress is None or not progress.snapshot_seconds:
        return f"{facts.grace_seconds:.0f} s; no snapshot has been measured yet"
    what = f"{facts.grace_seconds:.0f} s, and a snapshot takes {progress.snapshot_seconds:.1f} s"
    if facts.grace_seconds < MARGIN * progress.snapshot_seconds:
        longer = f"policy.gracePeriod of {MARGIN * progress.snapshot_seconds + 1:.0f}s or more"
        raise CheckWarning(f"{what}: the last one may not be finished", fix=f"submit it with a {longer}")
    return what
