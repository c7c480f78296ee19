"""The objects of ``events``, ``goodput`` and ``plot``: what a job's history says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.output.base import Document, Part, part_of
from kitctl.state.goodput import result
from kitjob import timeline

if TYPE_CHECKING:
    from kitjob.timeline import Event as Event  # noqa: PLC0414 - exported
    from kitjob.timeline import Row as Row  # noqa: PLC0414 - exported

    _Goodput = Document
else:  # as parts of documents
    Event, Row = part_of(timeline.Event), part_of(timeline.Row)
    _Goodput = part_of(result.Goodput, Document)


class EventList(Document, frozen=True, kw_only=True, tag="EventList"):
    """What happened to a job, as ``events`` prints it."""

    name: str
    """Name of the job."""
    namespace: str
    """Its namespace."""
    items: tuple[Event, ...]
    """The events, the oldest first."""


class Goodput(_Goodput, frozen=True, kw_only=True, tag="Goodput"):
    """What a job's node-seconds were spent on, as ``goodput`` prints it."""


class GoodputList(Document, frozen=True, kw_only=True, tag="GoodputList"):
    """The same of several jobs, as ``goodput -A`` prints it."""

    items: tuple[Goodput, ...]
    """One object per job that has a history."""


class Series(Part, frozen=True, kw_only=True):
    """The series of one job."""

    name: str
    """Name of the job."""
    namespace: str
    """Its namespace."""
    submitted: float
    """When it was submitted."""
    rows: tuple[Row, ...]
    """Its series, the oldest first."""
    events: tuple[Event, ...]
    """Its events, the oldest first."""


class SeriesList(Document, frozen=True, kw_only=True, tag="SeriesList"):
    """What ``plot`` draws."""

    items: tuple[Series, ...]
    """One object per job."""
