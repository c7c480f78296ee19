"""The objects of ``status``, ``list`` and ``submit``: a job, and a list of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.output.base import Document, part_of
from kitctl.state.phase import JobState

if TYPE_CHECKING:
    _State = Document
else:  # as a document
    _State = part_of(JobState, Document)


class Job(_State, frozen=True, kw_only=True, tag="Job"):
    """A job, as ``status``, ``list`` and ``submit`` print it."""

    cause: str = ""
    """What is wrong with it, or where its ranks stand still, as the first line of ``kitctl why``. Empty: nothing is
    known to be."""
    code: str = ""
    """The stable name of that cause, as docs/troubleshooting.md has it. Empty: it has none."""


class JobList(Document, frozen=True, kw_only=True, tag="JobList"):
    """Jobs, as ``list`` prints them."""

    items: tuple[Job, ...]
    """One object per job."""
