"""From a job request to what a target takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.cli.common import info

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kitctl.job_request import JobRequest
    from kitctl.targets import Submission


def objects(submission: Submission) -> list[dict[str, object]]:
    """The Kubernetes objects of a job."""
    from kitctl import render

    return render.manifests(submission.spec, submission.sources)


def warn(warnings: Iterable[str]) -> None:
    """Print warnings about a job that may run all the same."""
    for warning in warnings:
        info(f"warning: {warning}")


def rendered(job: JobRequest) -> list[dict[str, object]]:
    """The objects of a job that is only printed, with warnings about likely credentials."""
    from kitctl import credentials

    submission = prepare(job)
    warn(credentials.warnings(submission.spec, submission.sources))
    return objects(submission)


def prepare(
    job: JobRequest, namespace: str = "default", suffix: str = "", *, replace: bool = False, checks: bool = True
) -> Submission:
    """The job with the files of the current folder that are sent with it.

    Raises:
        SpecError: the file or a flag is wrong.
    """
    from pathlib import Path

    from kitctl import specfile
    from kitctl.sources import sources
    from kitctl.targets import Submission

    spec, folder = specfile.build(job, suffix=suffix, namespace=namespace), Path.cwd()
    return Submission(spec=spec, sources=sources(spec, folder), folder=folder, replace=replace, checks=checks)
