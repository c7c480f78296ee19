"""A submitted job, by name: its state, its lines, and what changes it. For any target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from kitctl.api.snapshot_client import SnapshotClient
from kitctl.base import printable
from kitctl.base.deadline import within
from kitctl.base.errors import JobCancelled, JobFailed, KitError, NotFinished, Unavailable, WaitTimeout
from kitctl.output.view.text import failure_lines
from kitctl.state import logs, running_job
from kitctl.state import phase as state
from kitctl.state.checks import Finding
from kitctl.state.phase import JobState
from kitctl.targets import SnapshotStore, Target

RETRY_SECONDS = 600.0  # how long to retry a target that does not answer: the job continues meanwhile
READ_SECONDS = 1.0  # to read a state, however short a timeout is: of 0, it asks whether the job has ended
REORDER_SECONDS = 0.3  # how long a followed line is held for an older one of another node


@dataclass(frozen=True, kw_only=True)
class Job:
    """A submitted job, by name; it may not exist, which each method reports as ``NotFound``."""

    target: Target
    namespace: str
    name: str

    def state(self) -> JobState:
        """Its state now."""
        return state.derive(self.target.job(self.namespace, self.name))

    def states(self, *, timeout: float | None = None) -> Iterator[JobState]:
        """Its state, polled until it ends.

        After the first answer, the target may be unreachable for some minutes.

        Args:
            timeout: in seconds.

        Raises:
            WaitTimeout: after ``timeout``; the job continues.
            Unavailable: the target does not answer.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        try:
            now = self._state_by(deadline)
        except TimeoutError as error:
            raise WaitTimeout(f"the state of job {self.name!r} could not be read in time", fix=self._goes_on) from error
        while True:
            yield now
            if now.finished:
                return
            if time.monotonic() > deadline:
                raise WaitTimeout(f"job {self.name!r} is still {now.phase.lower()}", fix=self._goes_on)
            time.sleep(self.target.poll_seconds)
            left = max(deadline - time.monotonic(), 0.0)
            self.target.retry_seconds = min(RETRY_SECONDS, left)
            try:
                now = self._state_by(deadline)
            except (Unavailable, TimeoutError) as error:
                if left > RETRY_SECONDS and isinstance(error, Unavailable):
                    raise
                what = f"job {self.name!r} was {now.phase.lower()} when last seen"
                raise WaitTimeout(what, fix=self._goes_on) from error

    def _state_by(self, deadline: float) -> JobState:
        """Its state; TimeoutError if the target, of whatever kind, does not tell it before the deadline."""
        if deadline == float("inf"):
            return self.state()
        return within(max(deadline - time.monotonic(), READ_SECONDS), self.state)

    def wait(self, *, timeout: float | None = None) -> JobState:
        """Wait until it has succeeded; returns its last state.

        Args:
            timeout: in seconds.

        Raises:
            JobFailed: it failed; with the cause, and a fix if one is known.
            JobCancelled: it was cancelled.
            WaitTimeout: after ``timeout``; the job continues.
        """
        *_, last = self.states(timeout=timeout)
        if error := error_for_phase(last):
            raise error
        return last

    def lines(self, selected: logs.Filter = logs.ALL, *, tail: int | None = None) -> Iterator[logs.Line]:
        """The lines that its ranks and agents have logged so far, sorted by time; with ``tail`` the last ones."""
        merged = logs.merge(self.target.lines(self.namespace, self.name))
        return iter(logs.tail(filter(selected.matches, merged), tail))

    def follow(self, selected: logs.Filter = logs.ALL) -> Iterator[logs.Line]:
        """All lines from the first, sorted by time, until it ends."""
        batches = self.target.follow(self.namespace, self.name)
        lines = logs.reorder(batches, _steady_clock(-REORDER_SECONDS), _steady_clock())
        self.target.retry_seconds = RETRY_SECONDS
        return filter(selected.matches, lines)

    def check(self) -> Iterator[Finding]:
        """Diagnose it: what ``kitctl doctor NAME`` prints."""
        return running_job.check_job(self.target.job(self.namespace, self.name))

    def scale(self, nodes: int) -> None:
        """Set the number of nodes of an elastic job.

        Raises:
            UsageError: it is not elastic, or not for that many.
        """
        self.target.scale(self.namespace, self.name, nodes)

    def suspend(self) -> None:
        """Take a snapshot and stop all nodes; wait for it."""
        self.target.suspend(self.namespace, self.name)

    def resume(self) -> None:
        """Start it again after ``suspend``, from its last snapshot."""
        self.target.resume(self.namespace, self.name)

    def restart(self) -> None:
        """Start all nodes again, from the last snapshot; also of a failed or cancelled job."""
        self.target.restart(self.namespace, self.name)

    def cancel(self) -> None:
        """Stop it for good; its logs, spec and snapshots stay."""
        self.target.cancel(self.namespace, self.name)

    def delete(self, *, snapshots: bool = False, outputs: bool = False) -> bool:
        """Stop and delete it.

        Args:
            snapshots: whether to delete its snapshots, too.
            outputs: whether to delete what its ranks wrote to working folders of its own, too.

        Returns:
            whether the snapshots are deleted.
        """
        return self.target.delete(self.namespace, self.name, snapshots=snapshots, outputs=outputs)

    def snapshots(self, *, claim: str = "", image: str = "") -> SnapshotClient:
        """Its snapshots, also after it was deleted.

        Args:
            claim: that holds them; for a deleted job whose claim was not its own.
            image: that reads them; for a deleted job.
        """
        store = SnapshotStore(namespace=self.namespace, name=self.name, claim=claim, image=image)
        return SnapshotClient(target=self.target, store=store)

    @property
    def _goes_on(self) -> str:
        return f"it is still running: kitctl status {self.name}"


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


def _logs_of(job: JobState) -> str:
    """The command that shows the logs before a failure."""
    rank = "" if job.failure is None or job.failure.rank is None else f" --rank {job.failure.rank}"
    return f"kitctl logs {job.name}{rank}"


def _steady_clock(shift: float = 0.0) -> Callable[[], str]:
    """A clock that ignores changes of this machine's, as logs have the time; ``shift`` in seconds."""
    offset = time.time() - time.monotonic() + shift

    def now() -> str:
        return datetime.fromtimestamp(offset + time.monotonic(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return now
