"""The output of ``-o json``: one versioned object per command, as types, and functions that create them.

What lives here: the format that scripts rely on; within one ``apiVersion`` keys are only added. The docstring under a
field is its documentation, and its description in the schema. What never does: printing, and finding out the values.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

import kitctl
from kitctl import targets
from kitctl.output.base import API_VERSION, Document
from kitctl.output.history import AuditReport, Snapshot, SnapshotDetails, SnapshotList
from kitctl.output.jobs import Job, JobList
from kitctl.output.logs import LogLine
from kitctl.output.reports import Change, Check, Diff, DoctorReport, DrillReport, FaultResult, Version, Why
from kitctl.output.stacks import StackReport
from kitctl.output.timeline import Event as EventPart
from kitctl.output.timeline import EventList, Goodput, GoodputList, Series, SeriesList
from kitctl.output.timeline import Row as RowPart
from kitctl.output.usage import UsageReport
from kitctl.render import templates
from kitctl.state import faults
from kitctl.state.checks import Finding
from kitctl.state.goodput.result import Goodput as GoodputFacts
from kitctl.state.history import JobHistory
from kitctl.state.logs import Line
from kitctl.state.phase import JobState
from kitctl.state.stacks import NodeStacks
from kitctl.state.usage import NodeUsage
from kitctl.state.why.explain import Explanation, explain
from kitjob.history import Audit as AuditFacts
from kitjob.history import SnapshotDetails as DetailFacts
from kitjob.history import SnapshotFacts
from kitjob.names import DEFAULT_IMAGE
from kitjob.timeline import Event, Row

__all__ = [
    "API_VERSION",
    "DOCUMENTS",
    "Document",
    "audit",
    "diff",
    "doctor",
    "drill",
    "event_list",
    "goodput",
    "goodput_list",
    "job",
    "job_list",
    "log_line",
    "series_list",
    "snapshot",
    "snapshot_list",
    "stacks",
    "usage",
    "version",
    "why",
]

DOCUMENTS: TypeAlias = (
    Job
    | JobList
    | LogLine
    | EventList
    | Goodput
    | GoodputList
    | SeriesList
    | SnapshotList
    | Snapshot
    | AuditReport
    | StackReport
    | UsageReport
    | DoctorReport
    | DrillReport
    | Diff
    | Version
    | Why
)

T = TypeVar("T")


def job(state: JobState, now: float) -> Job:
    """A job, at a moment in Unix seconds."""
    found = explain(state, now)
    return msgspec.structs.replace(_convert(state, Job), cause=found.headline, code=found.code)


def job_list(states: Iterable[JobState], now: float) -> JobList:
    """A list of jobs, likewise."""
    return JobList(items=tuple(job(state, now) for state in states))


def log_line(line: Line) -> LogLine:
    """A line of a log."""
    time = datetime.fromisoformat(line.time).timestamp() if line.time else None
    return LogLine(time=time, node=line.node, rank=line.rank, text=line.message)


def event_list(job: JobHistory, found: Iterable[Event]) -> EventList:
    """What happened to a job."""
    return EventList(name=job.name, namespace=job.namespace, items=tuple(_convert(one, EventPart) for one in found))


def goodput(found: GoodputFacts) -> Goodput:
    """Where a job's time went."""
    return _convert(found, Goodput)


def goodput_list(found: Iterable[GoodputFacts]) -> GoodputList:
    """Where the time of several jobs went."""
    return GoodputList(items=tuple(map(goodput, found)))


def series_list(jobs: Iterable[tuple[JobHistory, Sequence[Row], Sequence[Event]]]) -> SeriesList:
    """What is drawn of several jobs."""
    return SeriesList(
        items=tuple(
            Series(
                name=job.name,
                namespace=job.namespace,
                submitted=job.submitted,
                rows=tuple(_convert(one, RowPart) for one in rows),
                events=tuple(_convert(one, EventPart) for one in events),
            )
            for job, rows, events in jobs
        )
    )


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
        checks=tuple(
            Check(name=one.check, result=one.verdict, message=one.what, fix=one.fix, then=one.then) for one in findings
        )
    )


def why(found: Explanation, state: JobState) -> Why:
    """Why a job is in its state."""
    return Why(name=state.name, phase=state.phase, **msgspec.structs.asdict(found))


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


def stacks(nodes: Iterable[NodeStacks]) -> StackReport:
    """Where ranks are."""
    return _convert({"nodes": tuple(nodes)}, StackReport)


def usage(nodes: Iterable[NodeUsage]) -> UsageReport:
    """What ranks use."""
    return _convert({"nodes": tuple(nodes)}, UsageReport)


def diff(changes: Iterable[targets.Change]) -> Diff:
    """What submitting would change."""
    return Diff(changes=tuple(_convert(one, Change) for one in changes))


def _convert(value: Any, kind: type[T]) -> T:
    return msgspec.convert(value, kind, from_attributes=True)
