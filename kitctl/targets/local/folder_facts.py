"""Derives ``JobFacts`` from a job's folder. Reads files and locks, changes nothing."""

from __future__ import annotations

from pathlib import Path

from kitctl.state.facts import OWN_MEMORY, JobFacts, NodeFacts
from kitctl.state.history import Attempt, JobHistory
from kitctl.targets.local import disk, launch, outputs, supervisor_log
from kitctl.targets.local.folder import JobFolder, NodeFolder
from kitctl.targets.local.reconcile import Observed, describe
from kitctl.targets.local.records import SubmittedJob


def from_folder(folder: JobFolder, state: Path) -> JobFacts:
    """The facts of a job; ``state`` is the folder of all jobs and their snapshots."""
    job, desired, result = folder.job, folder.desired, folder.result
    count = max(desired.nodes, len(folder.nodes()))
    snapshots = OWN_MEMORY if job.spec.snapshots.storage == "memory" else launch.snapshot_dir(job.spec, state)
    return JobFacts(
        name=job.spec.name,
        namespace=job.spec.namespace,
        target="local",
        kind="processes",
        node_range=job.spec.node_range,
        desired_nodes=desired.nodes,
        created=job.created,
        suspended=desired.suspended,
        result=result.phase if result else None,
        ended=result.time if result else None,
        failure=result.failure if result else None,
        nodes=tuple(_node_facts(job, folder.node(index)) for index in range(count)),
        report=folder.report,
        preparing=folder.preparing,
        grace_seconds=job.spec.grace_seconds,
        snapshots=str(snapshots or ""),
        outputs=outputs.place(folder, state),
        halted=_halted(folder, state) if not result else "",
    )


def history(folder: JobFolder, facts: JobFacts, lines: bytes, *, now: float) -> JobHistory:
    """A job's past: the starts of its nodes, and the lines that these have written."""
    attempts = [_past(node, attempt) for node in folder.nodes() for attempt in range(1, node.attempts + 1)]
    return JobHistory(
        name=facts.name,
        namespace=facts.namespace,
        nodes=max(len(facts.nodes), 1 + max((one.node for one in attempts), default=0)),
        submitted=facts.created,
        now=now,
        ended=facts.ended,
        result=facts.result or "",
        run=folder.job.run,
        attempts=tuple(attempts),
        lines=lines,
    )


def _past(node: NodeFolder, attempt: int) -> Attempt:
    started, exited = node.started(attempt), node.exited(attempt)
    seen = _attempt(node, attempt, alive=False)
    return Attempt(
        node=node.index,
        started=started.time if started else None,
        ended=exited.time if exited else None,
        how=describe(seen) if exited and seen.outcome == "lost" else "",
    )


def _halted(folder: JobFolder, state: Path) -> str:
    """Why nothing starts the job's nodes, or tells how they end; empty if something does."""
    if full := disk.trouble(state):
        return full
    error = supervisor_log.failure(folder.supervisor_lines)
    return f"its supervisor has ended: {error}; see {folder.supervisor_log}" if error else ""


def _node_facts(job: SubmittedJob, node: NodeFolder) -> NodeFacts:
    alive, attempts = node.alive(), node.attempts
    started, exited = node.started(attempts), node.exited(attempts)
    termination = node.termination(attempts)
    if not (alive or started or exited):
        attempts -= attempts > 0  # its shim is about to take the lock
    gone = attempts and not alive
    seen = _attempt(node, attempts, alive=alive)
    return NodeFacts(
        index=node.index,
        pod=launch.pod(job.spec.name, node.index),
        host="localhost",
        alive=alive,
        attempts=attempts,
        pid=started.pid if started else None,
        started=started.time if started else None,
        ended=exited.time if exited else None,
        exit_code=exited.code if exited else None,
        signal=exited.signal if exited else None,
        termination=termination,
        note=describe(seen) if gone and seen.outcome != "done" else "",
        before=describe(_attempt(node, attempts - 1, alive=False)) if attempts > 1 else "",
    )


def _attempt(node: NodeFolder, attempt: int, *, alive: bool) -> Observed:
    return Observed(
        index=node.index,
        alive=alive,
        attempts=attempt,
        exited=node.exited(attempt),
        termination=node.termination(attempt),
        said=node.said(attempt),
    )
