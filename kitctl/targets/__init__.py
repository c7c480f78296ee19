"""Where jobs run: what every target can do, and which one is meant.

What lives here: the ``Target`` protocol and the choice between targets. What never does: how any of them works
(``local``, ``cluster``); they are imported by name, when chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from kitctl.doctor import Finding
from kitctl.facts import JobFacts
from kitctl.faults import FaultInjection
from kitctl.logs import Line
from kitctl.spec import JobSpec

TargetName = Literal["local", "cluster"]


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """The options that select a target; ``warn`` prints a message to the user."""

    warn: Callable[[str], None]
    target: TargetName | None = None
    context: str | None = None
    kubeconfig: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job as it is handed to a target: the spec, the files that travel with it, and the folder they lie in.

    With ``replace`` a job of that name is deleted first; without ``checks`` nobody asks whether it could ever run.
    """

    spec: JobSpec
    sources: Mapping[str, str]
    folder: Path
    replace: bool = False
    checks: bool = True


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object as it is (None: not there) and as it would be; ``refusal`` says why the target would not do it."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any]
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a job of that name keeps, or has kept: it may be gone.

    Where no job says so, ``claim`` is the existing claim that its snapshots are on, and ``image`` what reads them;
    empty: the claim that a job makes for itself, and the default image.
    """

    namespace: str
    name: str
    claim: str = ""
    image: str = ""


class Target(Protocol):
    """A place that runs jobs. Every call is complete when it returns; every name is looked up anew."""

    namespace: str
    """Where a job is looked for if nobody says so."""
    poll_seconds: float
    """How often it may be asked how a job is."""
    patience_seconds: float
    """How long it is asked again while it does not answer; who watches a job sets more."""

    def submit(self, submission: Submission) -> None:
        """Start a job.

        Raises:
            ConflictError: a job of that name is there already.
        """

    def examine(self, submission: Submission) -> Iterator[Finding]:
        """Whether it could run such a job: each check as it is made. Changes nothing."""

    def preview(self, submission: Submission) -> list[Change]:
        """What submitting a job would change, object by object.

        Raises:
            UnsupportedError: this target has no objects.
        """

    def jobs(self, namespace: str | None) -> list[JobFacts]:
        """All jobs of a namespace, or of all of them."""

    def job(self, namespace: str, name: str) -> JobFacts:
        """What is known about one job.

        Raises:
            NotFound: there is none of that name.
        """

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """Everything that was logged so far: one stream a node, each in order."""

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """All lines from the first on, in batches as they arrive, until the job ends; a batch may be empty."""

    def scale(self, namespace: str, name: str, nodes: int) -> None:
        """Change how many nodes an elastic job runs with."""

    def suspend(self, namespace: str, name: str) -> None:
        """Take a snapshot and stop all nodes; nothing is lost."""

    def resume(self, namespace: str, name: str) -> None:
        """Start a suspended job again from its last snapshot."""

    def restart(self, namespace: str, name: str) -> None:
        """Start all nodes anew, from the last snapshot; a failed or cancelled job too."""

    def cancel(self, namespace: str, name: str) -> None:
        """End a job; its logs, its spec and its snapshots stay."""

    def inject_fault(self, namespace: str, name: str, injection: FaultInjection) -> None:
        """Inject a fault into a job.

        Raises:
            ConflictError: there is no such node or rank now.
            Forbidden: it takes a right that this user does not have.
        """

    def delete(self, namespace: str, name: str, *, snapshots: bool) -> bool:
        """End a job and forget it; its snapshots stay unless they are to go too. Whether they are gone."""

    def beside(self, kept: Kept, words: Sequence[str]) -> Iterator[bytes]:
        """What ``kittrain.snapshots`` prints beside a job's snapshots when called with these words, as it comes.

        Raises:
            NotFound: there is neither such a job nor anything that one of its name left.
            TargetError: it could not be run there, or ended with an error, which is told.
        """


@dataclass(frozen=True, kw_only=True)
class ResolvedTarget:
    """Which target, and why: ``reason`` is for the person when nobody asked for it by name."""

    name: TargetName
    reason: str = ""


def resolve_target(options: TargetOptions, environ: Mapping[str, str] = os.environ) -> ResolvedTarget:
    """The target that was asked for; else the cluster of the kubeconfig; else, where there is none, this machine.

    A kubeconfig that is broken or unreachable is never a reason to run on this machine.
    """
    if options.target:
        return ResolvedTarget(name=options.target)
    named = options.context or options.kubeconfig or environ.get("KUBERNETES_SERVICE_HOST")
    if named or any(path.exists() for path in _kubeconfigs(environ)):
        return ResolvedTarget(name="cluster")
    return ResolvedTarget(name="local", reason="no kubeconfig: running on this machine (--target local)")


def connect(options: TargetOptions) -> Target:
    """The target itself; its module is imported here."""
    target: Target = import_module(f"kitctl.targets.{resolve_target(options).name}").connect(options)
    return target


def remarks(options: TargetOptions, submission: Submission) -> Iterable[str]:
    """What a person should know before such a job is submitted there, though it may be: a sentence each."""
    told: Iterable[str] = import_module(f"kitctl.targets.{resolve_target(options).name}").remarks(submission)
    return told


def _kubeconfigs(environ: Mapping[str, str]) -> list[Path]:
    listed = environ.get("KUBECONFIG", "")
    if listed:
        return [Path(path) for path in listed.split(os.pathsep) if path]
    return [Path(environ.get("HOME") or Path.home()) / ".kube" / "config"]
