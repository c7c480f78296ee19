"""Reads all that is known of a job. Each part may be missing: what could not be read has a reason."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from kitctl.api.job import Job
from kitctl.base import redaction
from kitctl.base.errors import KitError
from kitctl.base.redaction import Redactor
from kitctl.output import documents
from kitctl.output.bundle import LOG, LOGS, LogEnds
from kitctl.state import logs as log
from kitctl.state.phase import JobState
from kitctl.state.record import JobRecord

T = TypeVar("T")

LINES: Final = 80  # of a log, before the first failure
LINE: Final = 2000  # characters of a line
AFTER: Final = 0.5  # seconds in which a rank's traceback arrives after its failure is noticed


def record(job: Job) -> JobRecord:
    """All that is known of a job now.

    Raises:
        NotFound: there is no such job.
    """
    state = job.state()
    missing: dict[str, str] = {}

    def part(name: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except KitError as error:
            missing[name] = str(error)
            return None

    history = part("history", job.history)
    audit = part("audit", lambda: job.snapshots().audit()) if state.snapshots else None
    lines = part("logs", lambda: before_failure(state, job.lines()))
    return JobRecord(
        state=state,
        why=job.why(state),
        kept=job.target.records(job.namespace, job.name),
        history=history,
        audit=audit,
        failure=tuple(lines or ()),
        missing=missing,
        now=time.time(),
    )


def redactor(record: JobRecord, environ: Mapping[str, str]) -> Redactor:
    """What takes secrets out of all that is known of a job: also those values that its own settings show to be some.

    Args:
        record: the job.
        environ: variables of this process, whose secrets may have come into a log.
    """
    kept = record.kept
    return Redactor(redaction.secrets_of([dict(kept.settings), dict(kept.files), dict(environ)]))


def logs(job: Job, known: JobState) -> dict[int, LogEnds]:
    """The beginnings and ends of its nodes' logs, by node."""
    limit = min(LOG, LOGS // max(len(known.nodes), 1))
    found: dict[int, LogEnds] = {}
    for stream in job.target.lines(job.namespace, job.name):
        for line in stream:
            found.setdefault(line.node, LogEnds(limit)).add(f"{line.time} {line.text}".lstrip())
    return found


def further(job: Job, record: JobRecord) -> dict[str, object]:
    """What a bug report has in addition to a report, by path; what cannot be had is its reason."""
    found: dict[str, object] = {}

    def add(path: str, ask: Callable[[], object]) -> None:
        try:
            found[path] = ask()
        except KitError as error:
            found[f"{path}.txt"] = f"missing: {error}"

    add("doctor.json", lambda: documents.doctor([*job.check()]))
    if record.state.snapshots:
        add("snapshots.json", lambda: documents.snapshot_list(job.snapshots().all()))
    if record.state.ready_nodes:
        add("stacks.json", lambda: documents.stacks(job.stacks()))
    return found


def before_failure(job: JobState, lines: Iterable[log.Line]) -> list[log.Line]:
    """The last lines of the rank that failed first, until then; without a failure none."""
    found = first_failure(job)
    if found is None:
        return []
    moment, rank = found
    until = datetime.fromtimestamp(moment + AFTER, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment else None
    last: deque[log.Line] = deque(maxlen=LINES)
    for line in lines:
        if (until is None or line.time <= until) and (rank is None or line.rank == rank):
            last.append(log.Line(line.time, line.node, _cut(line.text)))
    return [*last]


def first_failure(job: JobState) -> tuple[float, int | None] | None:
    """When a rank failed for the first time, as far as that is known, and which: Unix seconds, 0 where unknown."""
    known: list[tuple[float, int | None]] = [(one.time, one.rank) for one in job.failures]
    known += [(one.time, one.rank) for one in (job.last_failure, job.failure) if one]
    return min(known, key=lambda one: one[0] or float("inf"), default=None)


def _cut(text: str) -> str:
    return text if len(text) <= LINE else f"{text[:LINE]}…"
