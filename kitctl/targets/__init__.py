"""Targets run jobs: the ``Target`` protocol, and the choice between the local and the cluster target.

The targets themselves (``local``, ``cluster``) are imported by name, when chosen. Other distributions add targets by an
entry point of the group ``kitctl.targets``, which names a package with the functions of ``TargetPackage``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from kitctl.base import plugins
from kitctl.base.errors import UsageError
from kitctl.base.user_folders import home

if TYPE_CHECKING:  # together they take long to import, and each command needs few of them
    from kitctl.code.code_tree import Sources
    from kitctl.spec.job_spec import JobSpec
    from kitctl.state.checks import Finding
    from kitctl.state.facts import JobFacts
    from kitctl.state.faults import FaultInjection
    from kitctl.state.history import JobHistory
    from kitctl.state.logs import Line
    from kitctl.state.record import TargetRecords
    from kitctl.state.running_job import RankPlace
    from kitctl.state.stacks import NodeStacks
    from kitctl.state.usage import NodeUsage

BUILT_IN: Final = ("local", "cluster")


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """The options that select a target; ``warn`` prints a message to the user."""

    warn: Callable[[str], None]
    target: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to submit: the spec, what is sent along, and the folder that it is submitted from.

    With ``replace`` a job of that name is deleted first; without ``checks`` a job is submitted that may never run. The
    templates in the folder ``templates`` replace those of the same file name in ``manifests/``.
    """

    spec: JobSpec
    sources: Sources
    folder: Path
    replace: bool = False
    checks: bool = True
    templates: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object before (None: it does not exist) and after; ``refusal`` is why the target would refuse the change."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any]
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class SnapshotStore:
    """The snapshots of a job of that name, which may be deleted.

    For a deleted job, ``claim`` is the claim that holds its snapshots, and ``image`` reads them; empty: the claim that
    a job creates for itself, and the default image.
    """

    namespace: str
    name: str
    claim: str = ""
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Session:
    """The user's side of a command that runs where a rank is.

    Attributes:
        write: called with what it prints, and 1 for stdout, 2 for stderr.
        stdin: file descriptor of its input; None: it has none.
        tty: whether it has the user's terminal.
        announce: called once with where it runs and as whom, before it starts.
    """

    write: Callable[[int, bytes], object]
    stdin: int | None = None
    tty: bool = False
    announce: Callable[[str], object] = lambda _: None


class Target(Protocol):
    """Runs jobs. Every call is complete when it returns; every name is looked up again."""

    namespace: str
    """The default namespace."""
    runs_here: bool
    """Whether ranks run on this machine, and see its files."""
    poll_seconds: float
    """The interval between two requests for a job's state."""
    retry_seconds: float
    """How long requests are retried while it does not answer; watching a job sets more."""

    def submit(self, submission: Submission) -> None:
        """Start a job.

        Raises:
            ConflictError: a job of that name exists.
        """

    def run_checks(self, submission: Submission) -> Iterator[Finding]:
        """Check whether it could run such a job; yields each finding as it is made. Changes nothing."""

    def preview(self, submission: Submission, *, refuse: bool = False) -> list[Change]:
        """What submitting a job would change, object by object; with ``refuse``, raises what ``submit`` would.

        Raises:
            UnsupportedError: this target has no objects.
        """

    def send_code(self, submission: Submission) -> dict[str, Any]:
        """Send a job's workdir without a job; returns the chart's value ``code``.

        Raises:
            UsageError: the job has none, or there is no place for it.
            UnsupportedError: this target has no objects.
        """

    def jobs(self, namespace: str | None) -> list[JobFacts]:
        """All jobs of a namespace, or of all namespaces."""

    def job(self, namespace: str, name: str) -> JobFacts:
        """The facts of one job.

        Raises:
            NotFound: there is no job of that name.
        """

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """Everything that was logged so far: one sorted stream per node."""

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """All lines from the first on, in batches as they arrive, until the job ends; a batch may be empty."""

    def scale(self, namespace: str, name: str, nodes: int) -> None:
        """Set the number of nodes of an elastic job."""

    def suspend(self, namespace: str, name: str) -> None:
        """Take a snapshot and stop all nodes."""

    def resume(self, namespace: str, name: str) -> None:
        """Start a suspended job again, from its last snapshot."""

    def restart(self, namespace: str, name: str) -> None:
        """Start all nodes again, from the last snapshot; also of a failed or cancelled job."""

    def cancel(self, namespace: str, name: str) -> None:
        """Stop a job for good; its logs, spec and snapshots stay."""

    def inject_fault(self, namespace: str, name: str, injection: FaultInjection) -> None:
        """Inject a fault into a job.

        Raises:
            ConflictError: there is no such node or rank at the moment.
            Forbidden: this user lacks a permission.
        """

    def stacks(self, namespace: str, name: str, nodes: frozenset[int]) -> list[NodeStacks]:
        """The stacks of the ranks of running nodes, all of about the same moment; empty: of all running nodes.

        A node that does not answer has a note that says why; one that is not running is left out.

        Raises:
            Forbidden: this user lacks a permission.
        """

    def usage(self, namespace: str, name: str) -> list[NodeUsage]:
        """What the ranks of running nodes use, in a moment; of a node that does not answer, why.

        Raises:
            Forbidden: this user lacks a permission.
        """

    def run_in_rank(self, namespace: str, name: str, place: RankPlace, command: Sequence[str], session: Session) -> int:
        """Run a command where a rank is; returns its exit code.

        Raises:
            ConflictError: the rank's node is not running.
            Forbidden: this user lacks a permission.
        """

    def profile(self, namespace: str, name: str, place: RankPlace, steps: int, seconds: float) -> Iterator[bytes]:
        """A trace of some steps of a rank, in Chrome's format, as it arrives; ``seconds``: to take the steps.

        Raises:
            ConflictError: the rank's node is not running.
            TargetError: there is none; with the reason.
        """

    def forward_port(
        self, namespace: str, name: str, place: RankPlace, ports: tuple[int, int], announce: Callable[[str], object]
    ) -> None:
        """Join a port of this machine to one where a rank is, until it is interrupted.

        Args:
            namespace: of the job.
            name: of the job.
            place: the rank and its node.
            ports: of this machine, 0 for any that is free, and of the rank's node.
            announce: called with what happens, a line.

        Raises:
            ConflictError: the rank's node is not running, or the port is taken.
            Forbidden: this user lacks a permission.
        """

    def delete(self, namespace: str, name: str, *, snapshots: bool, outputs: bool) -> bool:
        """Stop and delete a job, with its snapshots if ``snapshots`` is set. Whether the snapshots are deleted.

        What its ranks wrote to working folders of its own stays as well, and the user is told where, unless ``outputs``
        is set. A target that cannot keep it says so when the job is submitted, and now.
        """

    def delete_left(self, namespace: str, name: str) -> bool:
        """Delete the snapshots that a deleted job of that name has left. Whether there were any.

        Raises:
            ConflictError: they are not this user's, or in use.
        """

    def history(self, namespace: str, name: str) -> JobHistory:
        """What is known of a job's past, with what its agents have written next to its snapshots.

        Raises:
            NotFound: there is no job of that name.
            TargetError: it could not be read.
        """

    def records(self, namespace: str, name: str) -> TargetRecords:
        """What is kept about a job, for a report or a bug report.

        Raises:
            NotFound: there is no job of that name.
        """

    def run_snapshot_tool(self, store: SnapshotStore, args: Sequence[str]) -> Iterator[bytes]:
        """Run ``kittrain.rank.snapshots`` where the snapshots are, with these arguments; its stdout, as it arrives.

        Raises:
            NotFound: there is neither such a job nor snapshots of one.
            TargetError: it could not be run, or failed; with the last line of its stderr.
        """


@dataclass(frozen=True, kw_only=True)
class ResolvedTarget:
    """The target; ``reason`` explains the choice if the user named none."""

    name: str
    reason: str = ""


def resolve_target(options: TargetOptions, environ: Mapping[str, str] = os.environ) -> ResolvedTarget:
    """The requested target; else the kubeconfig's cluster; else, without a kubeconfig, this machine.

    If the kubeconfig is broken, named but missing, or its cluster unreachable, the job does not run on this machine
    instead.
    """
    if options.target:
        return ResolvedTarget(name=options.target)
    named = options.context or options.kubeconfig or environ.get("KUBECONFIG") or environ.get("KUBERNETES_SERVICE_HOST")
    if named or (Path(environ.get("HOME") or home()) / ".kube" / "config").exists():
        return ResolvedTarget(name="cluster")
    return ResolvedTarget(name="local", reason="no kubeconfig: running on this machine (--target local)")


class TargetPackage(Protocol):
    """The functions of a target's package."""

    @staticmethod
    def connect(options: TargetOptions) -> Target:
        """Connect to the target; nothing is sent yet."""

    @staticmethod
    def remarks(submission: Submission) -> Iterable[str]:
        """Warnings about a job before it is submitted, a sentence each."""


def package(name: str) -> TargetPackage:
    """Import a target's package.

    Raises:
        UsageError: there is no such target, or it cannot be imported.
    """
    found = import_module(f"kitctl.targets.{name}") if name in BUILT_IN else plugins.load(plugins.TARGETS, name)
    if found is None:
        known = ", ".join((*BUILT_IN, *plugins.names(plugins.TARGETS)))
        raise UsageError(f"there is no target {name!r}", fix=f"choose one of {known}")
    return cast("TargetPackage", found)
