"""From what the options say of a job to what a target takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kitctl.jobinput import JobInput
    from kitctl.targets import Submission


def prepare(
    job: JobInput, namespace: str = "default", suffix: str = "", *, replace: bool = False, checks: bool = True
) -> Submission:
    """The job with the files of the current folder that travel with it.

    Raises:
        SpecError: the file or a flag is wrong.
    """
    from pathlib import Path

    from kitctl import specfile
    from kitctl.targets import Submission

    spec, folder = specfile.build(job, suffix=suffix, namespace=namespace), Path.cwd()
    sources = specfile.sources(spec, folder)
    return Submission(spec=spec, sources=sources, folder=folder, replace=replace, checks=checks)
