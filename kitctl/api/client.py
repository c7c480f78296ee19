"""The Python API: submit and find jobs, on this machine or on a cluster.

    from kitctl import Client, JobSpec

    job = Client().submit(JobSpec(command=("train.py",), nodes=3))
    job.wait()

The commands of the command line are thin layers over it. Errors are those of ``kitctl.base.errors``.

Why: decision 36.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitctl import targets
from kitctl.api.job import Job
from kitctl.base.errors import UsageError
from kitctl.output.view.page import Findings
from kitctl.state import phase as state
from kitctl.state.phase import JobState
from kitctl.targets import Change, Submission, Target, TargetOptions

if TYPE_CHECKING:
    from kitctl.spec.job_spec import JobSpec


class Client:
    """The jobs of this machine, or of a cluster. Nothing is sent to a cluster before the first call.

    Args:
        target: ``local``, ``cluster``, or the name of an installed target; None: the cluster of the kubeconfig if there
            is one, else this machine.
        context: of the kubeconfig; None: the current one.
        kubeconfig: its path; None: ``$KUBECONFIG``, or ``~/.kube/config``.
        notify: called with each message for the user, a line; None: it is logged.

    Attributes:
        target: that runs the jobs.
        namespace: of jobs whose spec names none.
        reason: why this target was selected, if it was not named.

    Raises:
        UsageError: there is no such target or context.
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        context: str | None = None,
        kubeconfig: Path | str | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self._notify = notify or logging.getLogger("kitctl").warning
        options = TargetOptions(
            target=target, context=context, kubeconfig=Path(kubeconfig) if kubeconfig else None, warn=self._notify
        )
        selected = targets.resolve_target(options)
        self.reason = selected.reason
        self._package = targets.package(selected.name)
        self.target: Target = self._package.connect(options)
        self.namespace = self.target.namespace

    def __repr__(self) -> str:
        """Its target and namespace."""
        return f"<Client of {type(self.target).__name__}, namespace {self.namespace}>"

    def submit(
        self,
        spec: JobSpec,
        *,
        folder: Path | str | None = None,
        replace: bool = False,
        checks: bool = True,
        templates: Path | str | None = None,
    ) -> Job:
        """Start a job.

        Args:
            spec: the job.
            folder: of the files that are sent with it; None: the current one.
            replace: delete a job of that name first; its snapshots and outputs stay.
            checks: whether to check first that the target can run it.
            templates: a folder with templates that replace those of the same file name in ``manifests/``.

        Raises:
            ConflictError: a job of that name exists.
            UsageError: the target could never run it.
        """
        submission = self._submission(spec, folder, replace=replace, checks=checks, templates=templates)
        self.target.submit(submission)
        return self.job(submission.spec.name, submission.spec.namespace)

    def preview(
        self,
        spec: JobSpec,
        *,
        folder: Path | str | None = None,
        replace: bool = False,
        checks: bool = True,
        templates: Path | str | None = None,
        refuse: bool = False,
    ) -> list[Change]:
        """What submitting a job would change, object by object. Changes nothing.

        Args:
            spec: the job.
            folder: as of ``submit``.
            replace: as of ``submit``.
            checks: as of ``submit``.
            templates: as of ``submit``.
            refuse: whether to raise the errors that ``submit`` would raise before it creates anything.

        Raises:
            UnsupportedError: the target has no objects.
        """
        submission = self._submission(spec, folder, replace=replace, checks=checks, templates=templates)
        return self.target.preview(submission, refuse=refuse)

    def send_code(self, spec: JobSpec, *, folder: Path | str | None = None) -> dict[str, Any]:
        """Send a job's workdir to the cluster without a job; returns the value ``code`` by which the chart finds it.

        Raises:
            UsageError: the job has no workdir, or it is too large for a ConfigMap and the job names no claim.
            UnsupportedError: the target is not a cluster.
        """
        return self.target.send_code(self._submission(spec, folder))

    def check(self, spec: JobSpec, *, folder: Path | str | None = None) -> Findings:
        """Check whether the target can run a job; each finding is made when it is asked for. Changes nothing."""
        return Findings(self.target.run_checks(self._submission(spec, folder, remarks=False)))

    def job(self, name: str, namespace: str | None = None) -> Job:
        """The job of that name; nothing is requested yet."""
        return Job(target=self.target, namespace=namespace or self.namespace, name=name)

    def jobs(self, namespace: str | None = None, *, all_namespaces: bool = False) -> list[JobState]:
        """All jobs of a namespace, or of all, the oldest first."""
        where = None if all_namespaces else namespace or self.namespace
        return [state.derive(job) for job in self.target.jobs(where)]

    def _submission(
        self,
        spec: JobSpec,
        folder: Path | str | None,
        *,
        replace: bool = False,
        checks: bool = True,
        templates: Path | str | None = None,
        remarks: bool = True,
    ) -> Submission:
        from kitctl.code.sources import in_place, sources  # noqa: PLC0415 - for submissions: others start sooner without
        from kitctl.render.templates import check_folder  # noqa: PLC0415 - as above

        folder = Path(folder) if folder else Path.cwd()
        spec = _checked(spec).in_namespace(self.namespace)
        if self.target.runs_here:
            spec = in_place(spec, folder)
        submission = Submission(
            spec=spec,
            sources=sources(spec, folder),
            folder=folder,
            replace=replace,
            checks=checks,
            templates=check_folder(Path(templates)) if templates else None,
        )
        for remark in self._package.remarks(submission) if remarks else ():
            self._notify(f"warning: {remark}")
        return submission


def _checked(spec: object) -> JobSpec:
    """A job.

    Raises:
        UsageError: it is something else.
    """
    from kitctl.spec.job_spec import JobSpec  # noqa: PLC0415 - as above

    if isinstance(spec, JobSpec):
        return spec
    fix = "kitctl.JobSpec(command=('train.py',), nodes=2), or kitctl.load('job.yaml')"
    if callable(spec):
        fix = f"write it to a script, whose ranks call it: {fix}"
    raise UsageError(f"a job is a JobSpec, and no {type(spec).__name__}", fix=fix)
