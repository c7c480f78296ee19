"""The record of a job, which is written on submission."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import kitctl
from kitctl.code.code_tree import SentFolder
from kitctl.targets import Submission
from kitctl.targets.local import interpreter
from kitctl.targets.local.folder import packages_home
from kitctl.targets.local.records import SubmittedJob


def new_job(submission: Submission, path: Path, state: Path) -> SubmittedJob:
    """The record of a new run; ``path`` is the job's folder, ``state`` that of all jobs.

    Raises:
        UsageError: there is no such interpreter.
    """
    spec, sources = submission.spec, submission.sources
    return SubmittedJob(
        spec=spec,
        run=uuid.uuid4().hex,
        created=time.time(),
        folder=str(path if sources.workdir else submission.folder),
        python=interpreter.find(spec.python, submission.folder),
        library=str(interpreter.link_library(state)) if spec.python else "",
        version=kitctl.__version__,
        code=_digest(sources.workdir),
        requirements=_digest(sources.requirements),
        packages=str(packages_home()),
    )


def _digest(folder: SentFolder | None) -> str:
    return folder.tree.digest if folder else ""
