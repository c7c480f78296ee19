"""What agents and ranks report, read as plain values by the fields' names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kitjob import typed
from kitjob.record import Record
from kitjob.report import RankProgress, Report


def report_in(path: Path) -> Any:
    return plain(typed.load(Report, path.read_bytes()))


def progress_in(path: Path) -> Any:
    return plain(typed.load(RankProgress, path.read_bytes()))


def plain(value: Any) -> Any:
    if isinstance(value, Record):
        return {name: plain(getattr(value, name)) for name in value.__fields__}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value
