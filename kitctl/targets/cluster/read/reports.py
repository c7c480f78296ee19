"""The agents' reports, from a job's status ConfigMap or from its own status. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from kitctl.kinds import of_object
from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.names import HISTORY_KEY, PREPARING_KEY, REPORT_KEY
from kitjob.report import Preparation, Report

Object: TypeAlias = dict[str, Any]
T = TypeVar("T")


def report(config_map: Object | None) -> Report | None:
    """The latest report of rank 0's agent."""
    return _read(_data(config_map).get(REPORT_KEY, ""), Report)


def history_tail(config_map: Object | None) -> bytes:
    """The lines of a run's history that has no volume, as ``kittrain.helper.history`` prints them; perhaps empty."""
    return _data(config_map).get(HISTORY_KEY, "").encode()


def own_report(job: Object) -> Report | None:
    """A report from the job's own status, if no ConfigMap has one."""
    parts = of_object(job).progress(job)
    return typed.decode(Report, parts) if parts else None


def preparing(config_map: Object | None) -> dict[int, Preparation]:
    """What nodes do before they join, by node."""
    keys = [key for key in _data(config_map) if key.startswith(PREPARING_KEY)]
    found = {key.removeprefix(PREPARING_KEY): _read(_data(config_map)[key], Preparation) for key in keys}
    return {int(index): note for index, note in found.items() if note and index.isdecimal()}


def _data(config_map: Object | None) -> dict[str, str]:
    return (config_map or {}).get("data") or {}


def _read(text: str, kind: type[T]) -> T | None:
    try:
        found: T = typed.load(kind, text.encode(errors="replace"))
    except MalformedError:
        return None
    return found
