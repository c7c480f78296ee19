"""Checks of an existing job, based on the facts from its target. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from kitctl.base.errors import KitError
from kitctl.state.checks import CheckWarning, Finding, run_checks
from kitctl.state.facts import JobFacts
from kitctl.state.phase import JobState, derive

MARGIN: Final = 2.0  # a grace period should be this many times longer than the last snapshot took
MAX_NAMED_NODES: Final = 3  # the others are counted


def check_job(facts: JobFacts) -> Iterator[Finding]:
    """Check a job; returns all findings."""
    job = derive(facts)
    return run_checks(
        [
            ("phase", partial(_phase, job)),
            ("nodes", partial(_nodes, job)),
            ("restarts", partial(_restarts, job)),
            ("progress", partial(_progress, facts, job)),
            ("grace period", partial(_grace, facts)),
        ]
    )


def _phase(job: JobState) -> str:
    if job.phase == "Failed":
        fix = job.failure.fix if job.failure else ""
        error = job.failure.error if job.failure and job.failure.error not in job.reason else ""
        what = f"failed: {job.reason}" + (f" ({error})" if error else "")
        raise KitError(what, fix=fix or f"kitctl logs {job.name} has what came before")
    if job.phase in {"Pending", "Recovering"} and job.reason:
        raise CheckWarning(f"{job.phase.lower()}: {job.reason}")
    return job.phase.lower()


def _nodes(job: JobState) -> str:
    missing = [node for node in job.nodes if node.state in {"Lost", "Failed", "Pending"}]
    if missing and not job.finished and job.phase != "Suspended":
        named = missing[:MAX_NAMED_NODES]
        reasons = "; ".join(f"node {node.index}: {node.reason or node.state.lower()}" for node in named)
        more = f"; and {len(missing) - len(named)} more" if len(missing) > len(named) else ""
        raise CheckWarning(
            f"{len(missing)} of {len(job.nodes)} do not run: {reasons}{more}", fix=f"kitctl logs {job.name}"
        )
    return f"{job.ready_nodes} of {len(job.nodes)} run"


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
