"""The verbs of the local target: each reads or changes a job's folder, and sees to it that somebody supervises it."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

import kitctl
from kitctl.doctor import Finding
from kitctl.errors import ConflictError, NotFound, TargetError, UnsupportedError
from kitctl.facts import JobFacts
from kitctl.faults import FaultInjection
from kitctl.logs import Line
from kitctl.targets import Kept, Submission
from kitctl.targets.conflicts import already_there, check_scale, keeps_none, nothing_kept
from kitctl.targets.local import beside, checks, facts, launch, reading, striking, supervisor
from kitctl.targets.local.folder import JobFolder, create, hold, state_home
from kitctl.targets.local.records import Job, Wanted
from kitctl.targets.local.removal import insist_own, remove

STOP_SLACK_SECONDS = 15.0  # beyond the grace period: until SIGKILL was sent and noticed


class LocalTarget:
    """All jobs of one state folder. Implements ``kitctl.targets.Target``."""

    namespace = "default"
    poll_seconds = 0.5
    patience_seconds = 0.0  # a folder answers, or does not

    def __init__(self, state: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.state = state
        self._tell = tell

    @classmethod
    def of_user(cls, tell: Callable[[str], None] = lambda _: None) -> LocalTarget:
        """The target of the user who calls; ``tell`` takes remarks for them."""
        return cls(state_home(), tell)

    def submit(self, submission: Submission) -> None:
        """Write the job down and start its supervisor.

        Raises:
            ConflictError: a job of that name is there already.
            UsageError: this machine cannot run it.
        """
        spec = submission.spec
        checks.insist(submission)
        if submission.replace and (self._path(spec.namespace, spec.name) / "job.json").is_file():
            self.delete(spec.namespace, spec.name, snapshots=False)
        job = Job(
            spec=spec,
            run=uuid.uuid4().hex,
            created=time.time(),
            folder=str(submission.folder),
            python=sys.executable,
            version=kitctl.__version__,
        )
        try:
            folder = create(self._path(spec.namespace, spec.name), job, Wanted(nodes=spec.max_nodes))
        except FileExistsError as error:
            phase = self.job(spec.namespace, spec.name).result or "Running"
            raise already_there(spec.name, phase) from error
        supervisor.spawn(folder)

    def examine(self, submission: Submission) -> Iterator[Finding]:
        """Whether this machine could run it."""
        return checks.examine(submission, self.state)

    def preview(self, submission: Submission) -> NoReturn:  # noqa: ARG002 - the protocol's
        """There are no objects to compare.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("processes of this machine have no manifests to compare", fix="use --target cluster")

    def jobs(self, namespace: str | None) -> list[JobFacts]:
        """All jobs, the oldest first; those that cannot be read are told."""
        found = []
        for path in (self.state / "jobs").glob(f"{namespace or '*'}/[!.]*/job.json"):
            try:
                found.append(facts.job_facts(JobFolder(path.parent), self.state))
            except TargetError as error:
                self._tell(f"warning: {error.message}; {error.fix}")
        return sorted(found, key=lambda job: job.created)

    def job(self, namespace: str, name: str) -> JobFacts:
        """One job; a supervisor that was killed is replaced."""
        folder = self._open(namespace, name)
        self._supervise(folder)
        return facts.job_facts(folder, self.state)

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """What was logged so far: one stream a node."""
        return [reading.node_lines(node) for node in self._open(namespace, name).nodes()]

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """What is logged, as it is, until the job ends or is suspended."""
        folder = self._open(namespace, name)
        self._supervise(folder)
        return reading.follow(folder)

    def scale(self, namespace: str, name: str, nodes: int) -> None:
        """Run an elastic job with ``nodes`` nodes from now on.

        Raises:
            UsageError: the job is not elastic, or not for that many.
        """
        spec = self._open(namespace, name).job.spec
        check_scale(name, nodes, low=spec.min_nodes, high=spec.max_nodes)
        self._change(namespace, name, lambda wanted: msgspec.structs.replace(wanted, nodes=nodes))

    def suspend(self, namespace: str, name: str) -> None:
        """Drain all nodes, and wait until they are."""
        self._change(namespace, name, lambda wanted: msgspec.structs.replace(wanted, suspended=True))
        self._await_stop(namespace, name)

    def resume(self, namespace: str, name: str) -> None:
        """Start a suspended job again."""
        self._change(namespace, name, lambda wanted: msgspec.structs.replace(wanted, suspended=False))

    def restart(self, namespace: str, name: str) -> None:
        """Start all nodes anew.

        Raises:
            ConflictError: the job has succeeded; there is nothing left to do.
        """
        folder = self._open(namespace, name)
        end = folder.end
        if end and end.phase == "Succeeded":
            fix = f"submit it again; with --resume it goes on from the snapshots of {name!r}"
            raise ConflictError(f"{name!r} has succeeded", fix=fix)
        wanted = folder.wanted
        folder.write(Wanted(nodes=wanted.nodes, restarts=wanted.restarts + 1))
        if end:
            with hold(folder.lock):  # the supervisor that wrote it down is leaving
                folder.reopen()
        self._supervise(folder)

    def cancel(self, namespace: str, name: str) -> None:
        """End a job, and wait until it has ended."""
        self._change(namespace, name, lambda wanted: msgspec.structs.replace(wanted, cancelled=True))
        self._await_stop(namespace, name)

    def inject_fault(self, namespace: str, name: str, injection: FaultInjection) -> None:
        """Do a fault to one of its nodes, or a rank there."""
        striking.strike(self._open(namespace, name), injection)

    def delete(self, namespace: str, name: str, *, snapshots: bool) -> bool:
        """End a job and remove its folder.

        Raises:
            ConflictError: its snapshots are to go, and lie outside the state folder.
        """
        folder = self._open(namespace, name)
        kept = launch.snapshot_dir(folder.job.spec, self.state) if snapshots else None
        if kept:
            insist_own(kept, self.state)
        if not folder.end:
            self.cancel(namespace, name)
        if kept:
            remove(kept)
        grave = folder.path.with_name(f".gone-{uuid.uuid4().hex}")
        folder.path.rename(grave)  # at once nobody sees a job that is half gone
        shutil.rmtree(grave, ignore_errors=True)
        return snapshots

    def beside(self, kept: Kept, words: Sequence[str]) -> Iterator[bytes]:
        """What ``kittrain.snapshots`` prints about a folder that outlives its job."""
        folder = self._path(kept.namespace, kept.name)
        job = JobFolder(folder).job if (folder / "job.json").is_file() else None
        if job and not job.spec.snapshots.enabled:
            raise keeps_none(kept.name)
        claim = job.spec.snapshots.claim if job else kept.claim
        snapshots = launch.kept_dir(self.state, kept.namespace, kept.name, claim)
        if not (job or snapshots.is_dir()):
            raise nothing_kept(kept.name, "on this machine", f"{self.state} holds what earlier jobs left")
        return beside.run(job.python if job else sys.executable, snapshots, words)

    def _path(self, namespace: str, name: str) -> Path:
        return self.state / "jobs" / namespace / name

    def _open(self, namespace: str, name: str) -> JobFolder:
        path = self._path(namespace, name)
        if not (path / "job.json").is_file():
            fix = "kitctl list -A shows all jobs"
            raise NotFound(f"no job {name!r} in namespace {namespace!r} on this machine", fix=fix)
        return JobFolder(path)

    def _supervise(self, folder: JobFolder) -> None:
        """Start a supervisor if there is something to supervise and nobody who does."""
        idle = folder.wanted.suspended and not any(node.alive() for node in folder.nodes())
        if not (folder.end or idle or folder.supervised()):
            supervisor.spawn(folder)

    def _change(self, namespace: str, name: str, change: Callable[[Wanted], Wanted]) -> None:
        folder = self._open(namespace, name)
        if end := folder.end:
            raise ConflictError(
                f"{name!r} has ended already ({end.phase.lower()})", fix="kitctl restart starts a failed job again"
            )
        folder.write(change(folder.wanted))
        self._supervise(folder)

    def _await_stop(self, namespace: str, name: str) -> None:
        """Wait until no node runs and, if the job is to end, until that is written down."""
        folder = self._open(namespace, name)
        deadline = time.monotonic() + folder.job.spec.grace_seconds + STOP_SLACK_SECONDS
        while any(node.alive() for node in folder.nodes()) or not (folder.end or folder.wanted.suspended):
            if time.monotonic() > deadline:
                raise TargetError(f"{name!r} did not stop", fix=f"see {folder.path / 'supervisor.log'}")
            self._supervise(folder)
            time.sleep(supervisor.POLL_SECONDS)
