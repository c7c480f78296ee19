"""The agents' reports, from a job's status ConfigMap or from its own status. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

from kitctl.kinds import of_object
from kitctl.state.facts import Preparation, Report
from kitjob.names import PREPARING_KEY, REPORT_KEY

Object: TypeAlias = dict[str, Any]
T = TypeVar("T")


def report(config_map: Object | None) -> Report | None:
    """The latest report of rank 0's agent."""
    return _read(_data(config_map).get(REPORT_KEY, ""), Report)


def own_report(job: Object) -> Report | None:
    """A report from the job's own status, if no ConfigMap has one."""
    parts = of_object(job).progress(job)
    return msgspec.convert(parts, Report, strict=False) if parts else None


def preparing(config_map: Object | None) -> dict[int, Preparation]:
    """What nodes do before they join, by node."""
    keys = [key for key in _data(config_map) if key.startswith(PREPARING_KEY)]
    found = {key.removeprefix(PREPARING_KEY): _read(_data(config_map)[key], Preparation) for key in keys}
    return {int(index): note for index, note in found.items() if note and index.isdecimal()}


def _data(config_map: Object | None) -> dict[str, str]:
    return (config_map or {}).get("data") or {}


def _read(text: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None
