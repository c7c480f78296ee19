"""The objects of ``doctor``, ``drill``, ``diff`` and ``version``: checks, faults, changes, and what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from kitctl.output.base import Document, Part, part_of
from kitjob import report

if TYPE_CHECKING:
    from kitjob.report import RecoveryTimings
else:  # as a part of documents
    RecoveryTimings = part_of(report.RecoveryTimings)
from kitctl.state.phase import Phase


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


class DoctorReport(Document, frozen=True, kw_only=True, tag="DoctorReport"):
    """The checks that ``doctor`` makes."""

    checks: tuple[Check, ...]
    """In the order in which they were made."""


class FaultResult(Part, frozen=True, kw_only=True):
    """The result of one injected fault; durations count from the injection, null: not reached."""

    fault: str
    """Which fault, as in ``--fault``."""
    target: str
    """What it hit: ``node 1``, or ``rank 2 (node 1)``."""
    time: float
    """When it was injected."""
    formed: float | None
    """Seconds until a new group of ranks formed."""
    first_step: float | None
    """Seconds until that group took its first step."""
    steps_lost: int | None
    """Steps between the last reported one and the one that training resumed from."""
    restarts: int
    """Restarts of nodes, or of the ranks on nodes that stay."""
    timings: RecoveryTimings | None
    """The parts of the recovery, as the agents report them."""
    phase: Phase
    """Phase of the job, when last seen."""
    recovered: bool
    """Whether the job recovered within the timeout."""


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
