"""Watch a job: its states until it ends, its log lines in order, and the error of its final phase.

What lives here: what ``submit --wait``, ``wait``, ``status -w`` and ``logs -f`` share, for any target. What never does:
printing.
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

RETRY_SECONDS = 600.0  # how long to retry a target that does not answer: the job goes on meanwhile
REORDER_SECONDS = 0.3  # how long a followed line is held for an older one of another node


def current(target: Target, namespace: str, name: str) -> JobState:
    """A job's state now."""
    return state.derive(target.job(namespace, name))


def states(target: Target, namespace: str, name: str, *, timeout: float | None = None) -> Iterator[JobState]:
    """A job's state, polled until the job ends.

    After the first answer, the target may be unreachable for some minutes.

    Raises:
        WaitTimeout: after ``timeout`` seconds; the job goes on.
        Unavailable: the target does not answer.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    job = current(target, namespace, name)
    while True:
        yield job
        if job.finished:
            return
        if time.monotonic() > deadline:
            raise WaitTimeout(f"job {name!r} is still {job.phase.lower()}", fix=f"it goes on: kitctl status {name}")
        time.sleep(target.poll_seconds)
        left = max(deadline - time.monotonic(), 0.0)
        target.retry_seconds = min(RETRY_SECONDS, left)
        try:
            job = current(target, namespace, name)
        except Unavailable as error:
            if left > RETRY_SECONDS:
                raise
            fix = f"it goes on: kitctl status {name}"
            raise WaitTimeout(f"job {name!r} was {job.phase.lower()} when last seen", fix=fix) from error


def lines(target: Target, namespace: str, name: str, selected: logs.Filter, tail: int | None) -> Iterator[logs.Line]:
    """The lines logged so far, sorted by time."""
    merged = logs.merge(target.lines(namespace, name))
    return iter(logs.tail(filter(selected.matches, merged), tail))


def follow(target: Target, namespace: str, name: str, selected: logs.Filter) -> Iterator[logs.Line]:
    """All lines from the first, sorted by time, until the job ends."""

    def watermark() -> str:
        limit = datetime.now(UTC) - timedelta(seconds=REORDER_SECONDS)
        return limit.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    lines = logs.reorder(target.follow(namespace, name), watermark)
    target.retry_seconds = RETRY_SECONDS
    return filter(selected.matches, lines)


def _logs_of(job: JobState) -> str:
    """The command that shows the logs before a failure."""
    rank = "" if job.failure is None or job.failure.rank is None else f" --rank {job.failure.rank}"
    return f"kitctl logs {job.name}{rank}"


def error_for_phase(job: JobState) -> KitError | None:
    """The error for a job that has not succeeded; None if it has."""
    match job.phase:
        case "Succeeded":
            return None
        case "Failed":
            what = f"job {job.name!r} failed: {printable.line(job.reason) or 'unknown reason'}"
            details = [f"  {line}" for line in failure_lines(job.failure)]
            fix = printable.line(job.failure.fix) if job.failure else ""
            return JobFailed("\n".join((what, *details)), fix=fix or f"see {_logs_of(job)}")
        case "Cancelled":
            return JobCancelled(f"job {job.name!r} was cancelled")
        case _:
            return NotFinished(f"job {job.name!r} has not ended: {job.phase}", fix=f"kitctl wait {job.name}")
