"""The objects of ``doctor``, ``drill``, ``diff`` and ``version``: checks, faults, changes, and what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from kitctl.output.base import Document, Part, part_of
from kitctl.state import faults
from kitctl.state.phase import Phase
from kitctl.state.why import explain

if TYPE_CHECKING:
    from kitctl.state.faults import FaultResult as FaultResult  # noqa: PLC0414 - exported
else:  # as a part of documents
    FaultResult = part_of(faults.FaultResult)


if TYPE_CHECKING:
    _Explanation = Document
else:  # as a document
    _Explanation = part_of(explain.Explanation, Document)


class Why(_Explanation, frozen=True, kw_only=True, tag="Why"):
    """Why a job is in its state, as ``why`` prints it."""

    name: str
    """Name of the job."""
    phase: Phase
    """Its phase."""


class Check(Part, frozen=True, kw_only=True):
    """The result of one check."""

    name: str
    """Name of the check."""
    result: Literal["ok", "warning", "problem", "unknown"]
    """``unknown``: the check could not be made."""
    message: str
    """What was found, in a sentence."""
    fix: str
    """What to do about it. Empty: nothing, or unknown."""
    then: str = ""
    """How to continue, in a line. Empty: nothing has to be done."""


class DoctorReport(Document, frozen=True, kw_only=True, tag="DoctorReport"):
    """The checks that ``doctor`` makes."""

    checks: tuple[Check, ...]
    """In the order in which they were made."""


class DrillReport(Document, frozen=True, kw_only=True, tag="DrillReport"):
    """The faults that ``drill`` injected."""

    faults: tuple[FaultResult, ...]
    """In the order in which they were injected."""


class Change(Part, frozen=True, kw_only=True):
    """One Kubernetes object that submitting would create or change."""

    before: dict[str, Any] | None
    """The object now. Null: it does not exist."""
    after: dict[str, Any]
    """The object after submitting."""
    refusal: str
    """Why the cluster would reject the change. Empty: it would not."""


class Diff(Document, frozen=True, kw_only=True, tag="Diff"):
    """What submitting a job would change, as ``diff`` prints it."""

    changes: tuple[Change, ...]
    """Every object of the job, changed or not."""


class Version(Document, frozen=True, kw_only=True, tag="Version"):
    """What is installed, as ``version`` prints it."""

    version: str
    """Version of kitctl."""
    image: str
    """The default image of jobs."""
    python: str
    """Version of Python."""
    platform: str
    """Operating system and processor, as in ``Linux x86_64``."""
    manifests: str
    """Folder of the manifest templates; ``--templates`` replaces some of them."""
    chart: str
    """Folder of the Helm chart. Empty: it is not installed."""
