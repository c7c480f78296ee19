"""The output of ``-o json``: one versioned object per command, as types, and functions that create them.

What lives here: the format that scripts rely on; within one ``apiVersion`` keys are only added. The docstring under a
field is its documentation, and its description in the schema. What never does: printing, and finding out the values.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

import kitctl
from kitctl import targets
from kitctl.output.base import API_VERSION, Document
from kitctl.output.history import AuditReport, Snapshot, SnapshotDetails, SnapshotList
from kitctl.output.jobs import Job, JobList
from kitctl.output.logs import LogLine
from kitctl.output.reports import Change, Check, Diff, DoctorReport, DrillReport, FaultResult, Version
from kitctl.render import templates
from kitctl.state import faults
from kitctl.state.checks import Finding
from kitctl.state.logs import Line
from kitctl.state.phase import JobState
from kitjob.history import Audit as AuditFacts
from kitjob.history import SnapshotDetails as DetailFacts
from kitjob.history import SnapshotFacts
from kitjob.names import DEFAULT_IMAGE

__all__ = [
    "API_VERSION",
    "DOCUMENTS",
    "Document",
    "audit",
    "diff",
    "doctor",
    "drill",
    "job",
    "job_list",
    "log_line",
    "snapshot",
    "snapshot_list",
    "version",
]

DOCUMENTS: TypeAlias = (
    Job | JobList | LogLine | SnapshotList | Snapshot | AuditReport | DoctorReport | DrillReport | Diff | Version
)

T = TypeVar("T")


def job(state: JobState) -> Job:
    """A job."""
    return _convert(state, Job)


def job_list(states: Iterable[JobState]) -> JobList:
    """A list of jobs."""
    return JobList(items=tuple(map(job, states)))


def log_line(line: Line) -> LogLine:
    """A line of a log."""
    time = datetime.fromisoformat(line.time).timestamp() if line.time else None
    return LogLine(time=time, node=line.node, rank=line.rank, text=line.message)


def version() -> Version:
    """What is installed."""
    return Version(
        version=kitctl.__version__,
        image=DEFAULT_IMAGE,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        manifests=str(templates.folder()),
        chart=str(templates.chart() or ""),
    )


def doctor(findings: Iterable[Finding]) -> DoctorReport:
    """The results of checks."""
    return DoctorReport(
        checks=tuple(Check(name=one.check, result=one.verdict, message=one.what, fix=one.fix) for one in findings)
    )


def drill(results: Iterable[faults.FaultResult]) -> DrillReport:
    """The results of injected faults."""
    return DrillReport(faults=tuple(_convert(one, FaultResult) for one in results))


def snapshot_list(found: Iterable[SnapshotFacts]) -> SnapshotList:
    """A list of snapshots."""
    return SnapshotList(items=tuple(_convert(one, Snapshot) for one in found))


def snapshot(details: DetailFacts) -> Snapshot:
    """One snapshot, with its details."""
    return msgspec.structs.replace(_convert(details, Snapshot), details=_convert(details, SnapshotDetails))


def audit(found: AuditFacts) -> AuditReport:
    """The proofs of histories."""
    return _convert({"proved": found.holds, "proofs": found.proofs, "unusable": found.unusable}, AuditReport)


def diff(changes: Iterable[targets.Change]) -> Diff:
    """What submitting would change."""
    return Diff(changes=tuple(_convert(one, Change) for one in changes))


def _convert(value: Any, kind: type[T]) -> T:
    return msgspec.convert(value, kind, from_attributes=True)
