"""All that is known of one job, for those who were not there: what a report shows and a bug report has. Pure.

Nothing in it is redacted: who hands it on does that (``kitctl.base.redaction``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kitctl.state.history import JobHistory
from kitctl.state.logs import Line
from kitctl.state.phase import JobState
from kitctl.state.why.explain import Explanation
from kitjob.history import Audit


@dataclass(frozen=True, kw_only=True)
class TargetRecords:
    """What a target keeps about a job.

    Attributes:
        settings: of its job file, those that differ from their defaults, as far as they are known.
        environment: where and by what it runs, by name.
        files: what is kept, by path: nested data, or a text.
    """

    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    files: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job at one moment.

    Attributes:
        state: as ``kitctl status`` shows it.
        why: the cause of its state.
        kept: what its target keeps about it.
        history: its past; None: none is known.
        audit: the proof of its samples; None: it could not be made.
        failure: the last lines before its first failure; empty: it had none, or they are gone.
        missing: why a part is missing, by name: ``history``, ``audit``, ``logs``.
        now: when this was read, in Unix seconds.
    """

    state: JobState
    why: Explanation
    kept: TargetRecords
    history: JobHistory | None
    audit: Audit | None
    failure: tuple[Line, ...]
    missing: Mapping[str, str]
    now: float
