"""The pictures of a report, as plain data: places in percent of a width that the page decides. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from kitctl.base.quantity import duration
from kitctl.output.view import drawing, timeline
from kitctl.state.goodput.account import Stretch
from kitctl.state.goodput.kinds import BUCKETS, UNKNOWN
from kitctl.state.goodput.result import Goodput
from kitctl.state.history import JobHistory
from kitctl.state.series import METRICS, Mark, Picture, time_ticks, x_text
from kitjob.timeline import Row

WIDTH: Final = 1000  # units of a curve's own width, which is stretched
TICKS: Final = 9
EDGE: Final = 0.95  # of the width: from there on a label in the middle of its tick would not fit
THIN: Final = 0.0005  # share of all time of a stretch that can be seen
MOST_MARKS: Final = 400  # of a kind: more are not told apart


def charts(picture: Picture, rows: Sequence[Row], job: JobHistory, elapsed: float) -> dict[str, Any] | None:
    """The panels of one run from its submission on, with what the page needs to say the value at a place.

    None: no value is known.
    """
    if not picture.metrics:
        return None
    elapsed = max(elapsed, picture.end)
    run = picture.runs[0]
    steps = [(row.time - job.submitted, row.step) for row in rows if row.step is not None]
    return {
        "panels": [_panel(picture, metric, elapsed) for metric in picture.metrics],
        "ticks": _ticks(elapsed),
        "faults": [_mark(picture, one, elapsed) for one in run.marks if one.kind == "fault"][:MOST_MARKS],
        "resized": [_mark(picture, one, elapsed) for one in run.marks if one.kind == "resized"][:MOST_MARKS],
        "snapshots": [_mark(picture, one, elapsed) for one in run.marks if one.kind == "snapshot"][-MOST_MARKS:],
        "data": {
            "elapsed": elapsed,
            "steps": _thinned(steps),
            "series": {metric: _values(picture, metric) for metric in picture.metrics},
        },
    }


def lanes(found: Sequence[Sequence[Stretch]], elapsed: float) -> dict[str, Any]:
    """What each node did, over the whole time."""
    used = {one.bucket for lane in found for one in lane}
    return {
        "rows": [
            [
                {
                    "x": _percent(one.begin, elapsed),
                    "width": _percent(one.end - one.begin, elapsed),
                    "slug": slug(one.bucket),
                    "text": f"{one.bucket}: {duration(one.end - one.begin)}, from {duration(one.begin)}",
                }
                for one in lane
                if one.end - one.begin >= THIN * elapsed
            ]
            for lane in found
        ],
        "ticks": _ticks(elapsed),
        "legend": [{"name": name, "slug": slug(name), "what": what} for name, what in BUCKETS.items() if name in used],
    }


def waterfall(account: Goodput) -> list[dict[str, Any]]:
    """A row for each bucket that has any time: each bar begins where the one before ends."""
    rows, at = [], 0.0
    shown = [(one.name, one.seconds, one.share, one.parts) for one in account.buckets if one.seconds >= timeline.SHOWN]
    if account.unknown_seconds >= timeline.SHOWN:
        shown.append((UNKNOWN, account.unknown_seconds, account.unknown_seconds / account.node_seconds, ()))
    for name, seconds, share, parts in shown:
        by_name: dict[str, float] = {}
        for one in parts:
            by_name[one.part or "other"] = by_name.get(one.part or "other", 0.0) + one.seconds
        rows.append(
            {
                "name": name,
                "what": BUCKETS.get(name, "no measurement covers it"),
                "slug": slug(name),
                "x": round(100 * at, 3),
                "width": round(max(100 * share, 0.15), 3),
                "seconds": f"{seconds:,.1f}",
                "share": f"{share:.1%}",
                "parts": [{"name": part, "seconds": f"{spent:,.1f}"} for part, spent in by_name.items()],
            }
        )
        at += share
    return rows


def slug(name: str) -> str:
    """A bucket's name as a class of the style."""
    return name.replace(" ", "-")


def _panel(picture: Picture, metric: str, elapsed: float) -> dict[str, Any]:
    kind = METRICS[metric]
    low, high, log = drawing.bounds(picture, metric)
    height = drawing.STAIRS if kind.stairs else drawing.PANEL
    return {
        "metric": metric,
        "title": kind.title,
        "log": log,
        "height": height,
        "last": kind.show(picture.runs[0].curves[metric][-1][-1].y),
        "labels": [
            {"y": round(height * (1 - _up(value, low, high, log=log)), 1), "text": kind.show(value)}
            for value in drawing.values(low, high, log=log, stairs=kind.stairs)
        ],
        "paths": [
            drawing.path(
                [(WIDTH * _across(one.x, elapsed), height * (1 - _up(one.y, low, high, log=log))) for one in part]
            )
            for part in picture.runs[0].curves[metric]
        ],
    }


def _values(picture: Picture, metric: str) -> dict[str, Any]:
    """Points as a place from 0 to 1 in both directions, with the value as text."""
    kind = METRICS[metric]
    low, high, log = drawing.bounds(picture, metric)
    points = [one for part in picture.runs[0].curves[metric] for one in part]
    return {
        "x": [round(one.x, 2) for one in points],
        "y": [round(_up(one.y, low, high, log=log), 4) for one in points],
        "text": [kind.show(one.y) for one in points],
    }


def _thinned(steps: Sequence[tuple[float, int]]) -> dict[str, list[float]]:
    every = -(-len(steps) // 1000) or 1
    kept = [*steps[::every], *steps[-1:]]
    return {"x": [round(time, 2) for time, _ in kept], "step": [step for _, step in kept]}


def _mark(picture: Picture, mark: Mark, elapsed: float) -> dict[str, Any]:
    x = 100 * _across(mark.x, elapsed)
    end = x if mark.end is None else 100 * _across(mark.end, elapsed)
    text = f"{mark.kind} at {x_text(picture, mark.x)}: {mark.text}"
    return {"x": round(x, 3), "width": round(max(end - x, 0.0), 3), "text": text}


def _ticks(elapsed: float) -> list[dict[str, Any]]:
    """Labels of the time axis; only every other one is shown where there is little room."""
    return [
        {
            "x": _percent(tick, elapsed),
            "text": duration(tick),
            "minor": bool(index % 2),
            "anchor": "end" if tick > EDGE * elapsed else "middle",
        }
        for index, tick in enumerate(time_ticks(0.0, elapsed, TICKS))
    ]


def _across(x: float, elapsed: float) -> float:
    return min(max(x / (elapsed or 1.0), 0.0), 1.0)


def _up(value: float, low: float, high: float, *, log: bool) -> float:
    return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)


def _percent(seconds: float, whole: float) -> float:
    return round(100 * seconds / whole, 3) if whole else 0.0
