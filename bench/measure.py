"""Helpers of all benchmarks: result files, a description of the machine, and medians with intervals."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
RAW = ROOT / ".cache" / "bench"  # of this machine's runs, by result: not in git


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median and its bootstrap confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """One benchmark's result as a table.

    Attributes:
        note: the method, the number of trials, and the goals.
        raw: every trial, which stays on this machine.
    """

    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    raw: object


def save(name: str, result: Result) -> None:
    """Write ``bench/results/<name>.json`` and print its table."""
    write(name, result)
    for row in (result.columns, *result.rows):
        print("  " + " | ".join(row))


def write(name: str, result: Result) -> None:
    """Write ``bench/results/<name>.json``, and the trials to ``.cache/bench/<name>.json``."""
    content = {"machine": machine(), **asdict(result)}
    _write(RAW / f"{name}.json", content.pop("raw"))
    _write(RESULTS / f"{name}.json", content)


def earlier(name: str) -> list[dict[str, Any]]:
    """The raw trials of earlier runs, for benchmarks that accumulate trials over several runs."""
    path = RAW / f"{name}.json"
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def earlier_rows(name: str) -> list[tuple[str, ...]]:
    """The rows of the result that is there."""
    path = RESULTS / f"{name}.json"
    return [tuple(row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]] if path.exists() else []


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def machine() -> str:
    """Cores, load, system and versions, but not the name of the machine."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}, {platform.system()}, "
        f"Python {platform.python_version()}, torch {version('torch').partition('+')[0]}"
    )


def interval(samples: Sequence[float], *, confidence: float = 0.95, resamples: int = 4000) -> Interval:
    """The median of independent samples, with a percentile-bootstrap interval (Efron, 1979)."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(resamples))
    tail = int(resamples * (1 - confidence) / 2)
    return Interval(median=statistics.median(samples), low=medians[tail], high=medians[-1 - tail])
