"""A job as it changes: its states until it has ended, its log lines in order, and what its end means.

What lives here: everything that ``submit --wait``, ``wait``, ``status -w`` and ``logs -f`` have in common, for any
target. What never does: printing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from kitctl import logs, printable, state
from kitctl.errors import JobCancelled, JobFailed, KitError, NotFinished, Unavailable, WaitTimeout
from kitctl.state import JobState
from kitctl.targets import Target
from kitctl.view.text import failure_lines

PATIENCE_SECONDS = 600.0  # how long a job is watched whose target does not answer: it goes on meanwhile
REORDER_SECONDS = 0.3  # how long a followed line waits for an older one of another node


def current(target: Target, namespace: str, name: str) -> JobState:
    """A job's state now."""
    return state.derive(target.job(namespace, name))


def states(target: Target, namespace: str, name: str, *, timeout: float | None = None) -> Iterator[JobState]:
    """A job's state again and again; the last one is an end.

    Once the target has answered, it may be away for some minutes.

    Raises:
        WaitTimeout: after ``timeout`` seconds; the job goes on.
        Unavailable: the target does not answer any more.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    job = current(target, namespace, name)
    while True:
        yield job
        if job.finished:
            return
        if time.monotonic() > deadline:
            raise WaitTimeout(f"{name!r} is still {job.phase.lower()}", fix=f"it goes on: kitctl status {name}")
        time.sleep(target.poll_seconds)
        left = max(deadline - time.monotonic(), 0.0)
        target.patience_seconds = min(PATIENCE_SECONDS, left)
        try:
            job = current(target, namespace, name)
        except Unavailable as error:
            if left > PATIENCE_SECONDS:
                raise
            fix = f"it goes on: kitctl status {name}"
            raise WaitTimeout(f"{name!r} was {job.phase.lower()} when it was last seen", fix=fix) from error


def lines(target: Target, namespace: str, name: str, wanted: logs.Filter, tail: int | None) -> Iterator[logs.Line]:
    """What was logged so far, in the order of time."""
    merged = logs.merge(target.lines(namespace, name))
    return iter(logs.tail(filter(wanted.wants, merged), tail))


def follow(target: Target, namespace: str, name: str, wanted: logs.Filter) -> Iterator[logs.Line]:
    """What is logged, from the first line on, in the order of time, until the job ends."""

    def horizon() -> str:
        limit = datetime.now(UTC) - timedelta(seconds=REORDER_SECONDS)
        return limit.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    lines = logs.settle(target.follow(namespace, name), horizon)
    target.patience_seconds = PATIENCE_SECONDS
    return filter(wanted.wants, lines)


def _logs_of(job: JobState) -> str:
    """The command that shows what came before a failure."""
    whose = "" if job.failure is None or job.failure.rank is None else f" --rank {job.failure.rank}"
    return f"kitctl logs {job.name}{whose}"


def verdict(job: JobState) -> KitError | None:
    """What a job's state means to somebody who needed it to succeed; None if it has."""
    match job.phase:
        case "Succeeded":
            return None
        case "Failed":
            what = f"{job.name!r} failed: {printable.line(job.reason) or 'no reason is known'}"
            told = [f"  {line}" for line in failure_lines(job.failure)]
            fix = printable.line(job.failure.fix) if job.failure else ""
            return JobFailed("\n".join((what, *told)), fix=fix or f"see {_logs_of(job)}")
        case "Cancelled":
            return JobCancelled(f"{job.name!r} was cancelled")
        case _:
            return NotFinished(f"{job.name!r} has not ended: {job.phase}", fix=f"kitctl wait {job.name}")
