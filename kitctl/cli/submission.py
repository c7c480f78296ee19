"""From what the options say of a job to what a target takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.cli.common import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kitctl.jobinput import JobInput
    from kitctl.targets import Submission


def objects(submission: Submission) -> list[dict[str, object]]:
    """The Kubernetes objects that it would be."""
    from kitctl import render

    return render.manifests(submission.spec, submission.sources)


def warn(remarks: Iterable[str]) -> None:
    """Say what a person should know of a job, though it may run."""
    for remark in remarks:
        say(f"warning: {remark}")


def rendered(job: JobInput) -> list[dict[str, object]]:
    """The objects of a job that is only printed; says what of it looks like a credential."""
    from kitctl import credentials

    submission = prepare(job)
    warn(credentials.warnings(submission.spec, submission.sources))
    return objects(submission)


def prepare(
    job: JobInput, namespace: str = "default", suffix: str = "", *, replace: bool = False, checks: bool = True
) -> Submission:
    """The job with the files of the current folder that travel with it.

    Raises:
        SpecError: the file or a flag is wrong.
    """
    from pathlib import Path

    from kitctl import specfile
    from kitctl.sources import sources
    from kitctl.targets import Submission

    spec, folder = specfile.build(job, suffix=suffix, namespace=namespace), Path.cwd()
    return Submission(spec=spec, sources=sources(spec, folder), folder=folder, replace=replace, checks=checks)
