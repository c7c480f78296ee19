"""A submitted job, by name: its state, its lines, and what changes it. For any target."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING

from kitctl.base import printable
from kitctl.base.deadline import within
from kitctl.base.errors import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    KitError,
    NotFinished,
    Unavailable,
    UsageError,
    WaitTimeout,
)
from kitctl.output.view import notebook
from kitctl.output.view.page import Findings, Page, shown
from kitctl.output.view.text import Look, failure_lines, job_page
from kitctl.state import logs as log
from kitctl.state import phase as state
from kitctl.state.facts import OF_NODES
from kitctl.state.phase import JobState, Phase
from kitctl.state.why.explain import Explanation, advice, explain
from kitctl.state.why.repeats import shorter
from kitctl.targets import Session, SnapshotStore, Target

if TYPE_CHECKING:
    from kitctl.api.snapshot_client import SnapshotClient
    from kitctl.state.history import JobHistory
    from kitctl.state.members import Members
    from kitctl.state.stacks import NodeStacks
    from kitctl.state.usage import NodeUsage

RETRY_SECONDS = 600.0  # how long to retry a target that does not answer: the job continues meanwhile
REPR_SECONDS = 3.0  # a notebook waits for it, and shows something else
READ_SECONDS = 1.0  # to read a state, however short a timeout is: of 0, it asks whether the job has ended
REORDER_SECONDS = 0.3  # how long a followed line is held for an older one of another node


@dataclass(frozen=True, kw_only=True)
class Job:
    """A submitted job, by name; it may not exist, which each method reports as ``NotFound``."""

    target: Target
    namespace: str
    name: str

    def __repr__(self) -> str:
        """Its name; nothing is requested."""
        return f"<Job {self.namespace}/{self.name}>"

    def _repr_html_(self) -> str:
        """Its state now, in a notebook, unless that takes long or cannot be had."""
        try:
            return notebook.html(within(REPR_SECONDS, self.state))
        except (KitError, TimeoutError) as error:
            return notebook.pre(f"{self!r}: {error}")

    def status(self, *, wide: bool = False) -> Page:
        """Its page, as ``kitctl status`` prints it; with ``wide`` all its nodes."""
        return Page("\n".join(job_page(self.state(), time.time(), Look(wide=wide))))

    def logs(self, *, rank: int | None = None, tail: int | None = 200, include: str = "") -> Page:
        """What it has logged, as ``kitctl logs`` prints it; ``lines`` and ``follow`` return lines as objects.

        Args:
            rank: only of this one.
            tail: only so many lines, the last ones; None: all.
            include: only lines that match this regular expression.

        Raises:
            NotFound: it has no such rank.
        """
        _number("rank", rank)
        _number("tail", tail)
        ranks = frozenset() if rank is None else frozenset({rank})
        selected = log.Filter(ranks=ranks, include=re.compile(include) if include else None)
        return Page("\n".join(line.text for line in self.lines(selected, tail=tail)))

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
        _number("timeout", timeout, whole=False)
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        try:
            now = self._state_by(deadline)
        except TimeoutError as error:
            what = f"the state of job {self.name!r} could not be read in time"
            fix = f"it is not known whether there is such a job, and whether it runs: kitctl status {self.name}"
            raise WaitTimeout(what, fix=fix) from error
        while True:
            yield now
            if now.finished:
                return
            if time.monotonic() > deadline:
                what = f"job {self.name!r} is still {now.phase.lower()}"
                raise WaitTimeout(what, fix=_unfinished(self.name, now.phase))
            time.sleep(self.target.poll_seconds)
            left = max(deadline - time.monotonic(), 0.0)
            self.target.retry_seconds = min(RETRY_SECONDS, left)
            try:
                now = self._state_by(deadline)
            except JobNotFound as error:
                what = f"job {self.name!r} was {now.phase.lower()} when last seen, and has been deleted"
                raise JobNotFound(what, fix=error.fix) from error
            except (Unavailable, TimeoutError) as error:
                if left > RETRY_SECONDS and isinstance(error, Unavailable):
                    raise
                what = f"job {self.name!r} was {now.phase.lower()} when last seen"
                fix = f"it is not known whether it still runs: kitctl status {self.name}"
                raise WaitTimeout(what, fix=fix) from error

    def _state_by(self, deadline: float) -> JobState:
        """Its state; TimeoutError if the target, of whatever kind, does not tell it before the deadline."""
        if deadline == float("inf"):
            return self.state()
        return within(max(deadline - time.monotonic(), READ_SECONDS), self.state)

    def wait(self, *, timeout: float | None = None, progress: bool = False) -> JobState:
        """Wait until it has succeeded; returns its last state.

        Args:
            timeout: in seconds.
            progress: whether to print its phase, step and loss meanwhile: in a terminal and a notebook in one line.

        Raises:
            JobFailed: it failed; with the cause, and a fix if one is known.
            JobCancelled: it was cancelled.
            WaitTimeout: after ``timeout``; the job continues.
        """
        states = self.states(timeout=timeout)
        *_, last = shown(states) if progress else states
        if error := error_for_phase(last):
            raise error
        return last

    def lines(self, selected: log.Filter = log.ALL, *, tail: int | None = None) -> Iterator[log.Line]:
        """The lines that its ranks and agents have logged so far, sorted by time; with ``tail`` the last ones.

        Raises:
            NotFound: a rank or a node that is selected has never been one of the job's; known after the last line.
        """
        merged = log.merge(self.target.lines(self.namespace, self.name))
        if selected.ranks or selected.nodes:
            merged = self._checked(merged, selected)
        return iter(log.tail(filter(selected.matches, merged), tail))

    def follow(self, selected: log.Filter = log.ALL) -> Iterator[log.Line]:
        """All lines from the first, sorted by time, until it ends.

        Raises:
            NotFound: as of ``follow_batches``.
        """
        return itertools.chain.from_iterable(self.follow_batches(selected))

    def follow_batches(self, selected: log.Filter = log.ALL) -> Iterator[list[log.Line]]:
        """The same, in lists of the lines that can be shown together; one may be empty.

        Raises:
            NotFound: a rank or a node that is selected has never been one of the job's, and can become none.
        """
        from kitctl.state import members

        if selected.ranks or selected.nodes:
            members.check(selected, self.target.job(self.namespace, self.name), lambda: self._logged(selected))
        batches = self.target.follow(self.namespace, self.name)
        sorted_batches = log.reorder(batches, _steady_clock(-REORDER_SECONDS), _steady_clock())
        self.target.retry_seconds = RETRY_SECONDS
        if selected == log.ALL:
            return sorted_batches
        return (list(filter(selected.matches, batch)) for batch in sorted_batches)

    def _checked(self, lines: Iterator[log.Line], selected: log.Filter) -> Iterator[log.Line]:
        """The lines; then an error if one selects what the job does not have."""
        from kitctl.state import members

        logged = members.Members()
        for line in lines:
            logged.add(line)
            yield line
        if not logged.have(selected):
            members.check(selected, self.target.job(self.namespace, self.name), lambda: logged)

    def _logged(self, selected: log.Filter) -> Members:
        """The ranks and nodes that have logged something, as far as they are selected."""
        from kitctl.state import members

        logged = members.Members()
        for line in itertools.chain.from_iterable(self.target.lines(self.namespace, self.name)):
            logged.add(line)
            if logged.have(selected):
                break
        return logged

    def check(self) -> Findings:
        """Diagnose it: what ``kitctl doctor NAME`` prints."""
        from kitctl.state import running_job

        return Findings(running_job.check_job(self.target.job(self.namespace, self.name), time.time()))

    def stacks(self, ranks: frozenset[int] = frozenset()) -> list[NodeStacks]:
        """Where its ranks are: the stacks of all threads that run Python, also while they hang; empty: of all ranks.

        Raises:
            ConflictError: no node of it runs.
            NotFound: it has no such rank.
        """
        from kitctl.state import running_job, stacks

        facts = self.target.job(self.namespace, self.name)
        found = self.target.stacks(self.namespace, self.name, running_job.nodes_of(facts, ranks))
        if not found:
            raise running_job.not_running(facts)
        return stacks.only(found, ranks)

    def usage(self) -> list[NodeUsage]:
        """What its ranks use in a moment: processor, memory and, where known, GPUs.

        Raises:
            ConflictError: no node of it runs.
        """
        from kitctl.state import running_job

        found = self.target.usage(self.namespace, self.name)
        if not found:
            raise running_job.not_running(self.target.job(self.namespace, self.name))
        return found

    def run_in_rank(self, rank: int, command: Sequence[str], session: Session) -> int:
        """Run a command in a rank's working folder, with its variables, and return its exit code.

        Raises:
            NotFound: it has no such rank.
            ConflictError: the rank's node is not running.
        """
        from kitctl.state import running_job

        place = running_job.place_of(self.target.job(self.namespace, self.name), rank)
        return self.target.run_in_rank(self.namespace, self.name, place, command, session)

    def profile(self, rank: int = 0, steps: int = 20, *, timeout: float = 300.0) -> Iterator[bytes]:
        """A trace of the next steps of a rank by torch's profiler, in Chrome's format, as it arrives.

        Args:
            rank: that is profiled.
            steps: how many calls of its optimizer.
            timeout: in seconds, to take them.

        Raises:
            NotFound: it has no such rank.
            ConflictError: the rank's node is not running.
            TargetError: there is no trace; with the reason.
        """
        from kitctl.state import running_job

        place = running_job.place_of(self.target.job(self.namespace, self.name), rank)
        return self.target.profile(self.namespace, self.name, place, steps, timeout)

    def forward_port(self, rank: int, local: int, remote: int, announce: Callable[[str], object]) -> None:
        """Join a port of this machine to one of a rank's node, until it is interrupted.

        Raises:
            NotFound: it has no such rank.
            ConflictError: the rank's node is not running, or the port is taken.
        """
        from kitctl.state import running_job

        place = running_job.place_of(self.target.job(self.namespace, self.name), rank)
        self.target.forward_port(self.namespace, self.name, place, (local, remote), announce)

    def why(self, seen: JobState | None = None) -> Explanation:
        """The cause of its state, the fix, and what shows it.

        Args:
            seen: its state, if that is known.
        """
        return explain(seen or self.state(), time.time())

    def scale(self, nodes: int) -> None:
        """Set the number of nodes of an elastic job.

        Raises:
            UsageError: it is not elastic, or not for that many.
        """
        _number("nodes", nodes)
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
            snapshots: whether to delete its snapshots, too; also those that it has left, if it is deleted already.
            outputs: whether to delete what its ranks wrote to working folders of its own, too.

        Returns:
            whether the snapshots are deleted.
        """
        try:
            return self.target.delete(self.namespace, self.name, snapshots=snapshots, outputs=outputs)
        except JobNotFound:
            if not (snapshots and self.target.delete_left(self.namespace, self.name)):
                raise
            return True

    def snapshots(self, *, claim: str = "", image: str = "") -> SnapshotClient:
        """Its snapshots, also after it was deleted.

        Args:
            claim: that holds them; for a deleted job whose claim was not its own.
            image: that reads them; for a deleted job.
        """
        from kitctl.api.snapshot_client import SnapshotClient

        store = SnapshotStore(namespace=self.namespace, name=self.name, claim=claim, image=image)
        return SnapshotClient(target=self.target, store=store)

    def history(self) -> JobHistory:
        """What is known of its past: series and events of its nodes.

        Raises:
            KitError: there is none, with the reason.
        """
        from kitctl.state import history

        found = self.target.history(self.namespace, self.name)
        if not history.writers(found):
            raise no_history(found, self.state())
        return found

    def events(self, *, wide: bool = False) -> Page:
        """What happened to it, as ``kitctl events`` prints it; with ``wide`` more of each event.

        Raises:
            KitError: nothing is known of its past, with the reason.
        """
        from kitctl.output.view import timeline as view
        from kitctl.state import history

        return Page("\n".join(view.events(history.events(self.history()), wide=wide)))

    def goodput(self, *, wide: bool = False) -> Page:
        """What its node-seconds were spent on, as ``kitctl goodput`` prints it; with ``wide`` each part of a bucket.

        Raises:
            KitError: nothing is known of its past, with the reason.
        """
        from kitctl.output.view import timeline as view
        from kitctl.state.goodput.account import account

        return Page("\n".join(view.goodput(account(self.history()), wide=wide)))


def _unfinished(name: str, phase: Phase) -> str:
    """What to do about a job that has not ended in time."""
    match phase:
        case "Suspended":
            return f"to continue it: kitctl resume {name}"
        case "Pending" | "Queued" | "Starting":
            return f"what it waits for: kitctl why {name}"
        case _:
            return f"it is still running: kitctl status {name}"


def _number(name: str, given: object, *, whole: bool = True) -> None:
    """Check an argument of a call, which a notebook's user may give as text; numpy's numbers are some, too.

    Raises:
        UsageError: it is no number, or none of that kind.
    """
    if given is not None and (isinstance(given, bool) or not isinstance(given, Integral if whole else Real)):
        what, example = ("whole number", "0") if whole else ("number of seconds", "60")
        raise UsageError(f"{name}: {given!r} is no {what}", fix=f"give one, as in {name}={example}")


def no_history(found: JobHistory, job: JobState) -> KitError:
    """Why a job has no history, and what to do."""
    if job.phase in {"Pending", "Queued", "Starting"} or not (found.attempts or job.finished):
        what, fix = f"job {job.name!r} has no history yet: it is {job.phase.lower()}", f"kitctl status {job.name}"
    elif job.target != "local" and (not job.snapshots or job.snapshots in OF_NODES):
        what = f"job {job.name!r} has no history: it has no claim to keep it on"
        fix = "submit it with snapshots (snapshots.enabled)"
    else:
        what = f"job {job.name!r} has no history: none of its nodes got that far, or a trainer without it ran"
        fix = f"kitctl logs {job.name}; an image of kitctl's version writes a history"
    return NotFinished(what, fix=fix) if not job.finished else KitError(what, fix=fix)


def error_for_phase(job: JobState) -> KitError | None:
    """The error for a job that has not succeeded; None if it has."""
    match job.phase:
        case "Succeeded":
            return None
        case "Failed":
            found = explain(job, time.time())
            what = f"job {job.name!r} failed: {printable.line(found.cause) or 'unknown reason'}"
            how = printable.line(shorter(job.reason, found.cause))
            details = [*([how] if how else []), *failure_lines(job.failure, found.cause)]
            fix = printable.line(advice(job, found))
            return JobFailed("\n  ".join((what, *details)), fix=fix, then=found.then)
        case "Cancelled":
            return JobCancelled(f"job {job.name!r} was cancelled", then=explain(job, time.time()).then)
        case _:
            return NotFinished(f"job {job.name!r} has not ended: {job.phase}", fix=f"kitctl wait {job.name}")


def _steady_clock(shift: float = 0.0) -> Callable[[], str]:
    """A clock that ignores changes of this machine's, as logs have the time; ``shift`` in seconds."""
    offset = time.time() - time.monotonic() + shift

    def now() -> str:
        return datetime.fromtimestamp(offset + time.monotonic(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return now
