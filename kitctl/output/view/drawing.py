"""Curves as an SVG picture of its own: no script, no font, no other file. Light and dark, as its viewer is. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from kitctl.base import printable
from kitctl.state.series import METRICS, Picture, Point, ticks, time_ticks, x_text

WIDTH: Final = 960
LEFT: Final = 92
RIGHT: Final = 28
TOP: Final = 104
BOTTOM: Final = 64
PANEL: Final = 150  # height
STAIRS: Final = 64  # height of a panel of few values
BETWEEN: Final = 46
INNER: Final = WIDTH - LEFT - RIGHT
COLOURS: Final = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#0891b2", "#ca8a04")
STYLE: Final = """
svg { color-scheme: light dark; }
.page { fill: #ffffff; } .text { fill: #111827; } .quiet { fill: #6b7280; }
.grid { stroke: #e5e7eb; } .frame { stroke: #9ca3af; } .fault { stroke: #dc2626; } .lost { fill: #dc2626; }
.resized { stroke: #7c3aed; } .other { fill: #7c3aed; } .snapshot { fill: #6b7280; }
@media (prefers-color-scheme: dark) {
  .page { fill: #111827; } .text { fill: #f3f4f6; } .quiet { fill: #9ca3af; }
  .grid { stroke: #1f2937; } .frame { stroke: #4b5563; } .fault { stroke: #f87171; } .lost { fill: #f87171; }
  .resized { stroke: #a78bfa; } .other { fill: #a78bfa; } .snapshot { fill: #9ca3af; }
}
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.title { font-size: 20px; font-weight: 600; } .name { font-weight: 600; } .number { font-size: 12px; }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
"""


def svg(picture: Picture) -> str:
    """The picture as the text of a file."""
    height = TOP + sum(_height(metric) + BETWEEN for metric in picture.metrics) - BETWEEN + BOTTOM
    title = ", ".join(_text(run.name) for run in picture.runs)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        *_head(picture),
    ]
    top = TOP
    for metric in picture.metrics:
        lines += _panel(picture, metric, top, last=metric == picture.metrics[-1])
        top += _height(metric) + BETWEEN
    return "\n".join([*lines, "</svg>", ""])


def _height(metric: str) -> int:
    return STAIRS if METRICS[metric].stairs else PANEL


def _head(picture: Picture) -> Iterator[str]:
    x = float(LEFT)
    if len(picture.runs) == 1:
        yield f'<text class="text title" x="{LEFT}" y="38">{_text(picture.runs[0].name)}</text>'
    else:
        for index, run in enumerate(picture.runs):
            colour = COLOURS[index % len(COLOURS)]
            yield f'<rect x="{x:.0f}" y="27" width="18" height="5" rx="2.5" fill="{colour}"/>'
            yield f'<text class="text name" x="{x + 25:.0f}" y="34">{_text(run.name)}</text>'
            x += 52 + 8 * len(run.name)
    kinds = {kind: sum(mark.kind == kind for run in picture.runs for mark in run.marks) for kind in _SIGNS}
    x = float(LEFT)
    for kind, count in kinds.items():
        if count:
            yield _SIGNS[kind](x + 5, 58)
            told = f"{count} {kind}{'s' if count != 1 and kind != 'resized' else ''}"
            yield f'<text class="quiet number" x="{x + 15:.0f}" y="62">{told}</text>'
            x += 36 + 7 * len(told)


def _panel(picture: Picture, metric: str, top: int, *, last: bool) -> Iterator[str]:
    kind, bottom = METRICS[metric], top + _height(metric)
    low, high, log = bounds(picture, metric)
    place = _place(picture, low, high, (top, bottom), log=log)
    scale = " (log scale)" if log else ""
    yield f'<text class="text name" x="{LEFT}" y="{top - 10}">{kind.title}{scale}</text>'
    yield from _faults(picture, top, bottom)
    for value in values(low, high, log=log, stairs=kind.stairs):
        _, y = place(Point(picture.begin, value))
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{LEFT + INNER}"/>'
        yield f'<text class="quiet number" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{kind.show(value)}</text>'
    yield from _times(picture, bottom, labels=last)
    for index, run in enumerate(picture.runs):
        colour = COLOURS[index % len(COLOURS)]
        for part in run.curves[metric]:
            yield f'<path class="curve" stroke="{colour}" d="{path([place(one) for one in part])}"/>'
    yield f'<path class="frame" d="M{LEFT} {bottom}H{LEFT + INNER}"/>'
    if len(picture.runs) == 1 and picture.runs[0].curves[metric]:
        end = kind.show(picture.runs[0].curves[metric][-1][-1].y)
        yield f'<text class="quiet number" x="{LEFT + INNER}" y="{top - 10}" text-anchor="end">{end}</text>'
    yield from _marks(picture, top, bottom, signs=last)


def _faults(picture: Picture, top: int, bottom: int) -> Iterator[str]:
    """What was lost: from a fault to the next first step."""
    for run in picture.runs:
        for mark in run.marks:
            if mark.end is not None:
                begin, end = _x(picture, mark.x), _x(picture, mark.end)
                size = f'width="{max(end - begin, 1):.1f}" height="{bottom - top}"'
                yield f'<rect class="lost" opacity="0.14" x="{begin:.1f}" y="{top}" {size}/>'


def _marks(picture: Picture, top: int, bottom: int, *, signs: bool) -> Iterator[str]:
    for run in picture.runs:
        for mark in run.marks:
            if not picture.begin <= mark.x <= picture.end:
                continue
            x = _x(picture, mark.x)
            told = f"{run.name}: {mark.kind} at {x_text(picture, mark.x)}: {mark.text}"
            hover = f"<title>{_text(told)}</title>"
            if mark.kind in {"fault", "resized"}:
                yield (f'<path class="{mark.kind}" stroke-dasharray="3 3" d="M{x:.1f} {top}V{bottom}">{hover}</path>')
            if signs:
                yield f"<g>{hover}{_SIGNS[mark.kind](x, bottom)}</g>"


def _times(picture: Picture, bottom: int, *, labels: bool) -> Iterator[str]:
    found = (time_ticks if picture.by == "time" else ticks)(picture.begin, picture.end, 9)
    for tick in found:
        x = _x(picture, tick)
        yield f'<path class="frame" d="M{x:.1f} {bottom}v5"/>'
        if labels:
            text = x_text(picture, tick)
            yield f'<text class="quiet number" x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">{text}</text>'
    if labels:
        what = "time since the submission" if picture.by == "time" else "steps"
        middle = f'x="{LEFT + INNER / 2}" y="{bottom + 46}" text-anchor="middle"'
        yield f'<text class="quiet number" {middle}>{what}</text>'


def bounds(picture: Picture, metric: str) -> tuple[float, float, bool]:
    """Those of a panel, with some room above and below its curves; and whether its scale is logarithmic."""
    low, high, log = picture.bounds(metric)
    if log:
        return low, high, log
    room = (high - low) * 0.06
    return (low if METRICS[metric].from_zero and low == 0 else low - room), high + room, log


def values(low: float, high: float, *, log: bool, stairs: bool) -> Sequence[float]:
    """Where a panel's vertical axis has labels."""
    if not log:
        return [0.0, float(int(high))] if stairs else ticks(low, high, 4)
    found = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in (1, 2, 5)
        if low <= factor * 10.0**power <= high
    ]
    return found if len(found) <= 5 else [one for one in found if f"{one:e}"[0] == "1"]  # noqa: PLR2004  labels


def path(places: Sequence[tuple[float, float]]) -> str:
    """What a curve's ``path`` draws."""
    if len(places) == 1:
        return f"M{places[0][0]:.1f} {places[0][1]:.1f}h.1"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _x(picture: Picture, x: float) -> float:
    span = (picture.end - picture.begin) or 1
    return LEFT + INNER * min(max((x - picture.begin) / span, 0.0), 1.0)


def _place(
    picture: Picture, low: float, high: float, room: tuple[int, int], *, log: bool
) -> Callable[[Point], tuple[float, float]]:
    def place(one: Point) -> tuple[float, float]:
        up = math.log(one.y / low) / math.log(high / low) if log else (one.y - low) / (high - low)
        return _x(picture, one.x), room[1] - (room[1] - room[0]) * up

    return place


def _fault_sign(x: float, y: float) -> str:
    return f'<path class="lost" d="M{x:.1f} {y - 6:.1f}l5 9h-10z"/>'


def _resized_sign(x: float, y: float) -> str:
    return f'<rect class="other" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'


def _snapshot_sign(x: float, y: float) -> str:
    return f'<circle class="snapshot" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'


_SIGNS: Final[dict[str, Callable[[float, float], str]]] = {
    "snapshot": _snapshot_sign,
    "resized": _resized_sign,
    "fault": _fault_sign,
}


def _text(text: str) -> str:
    return escape(printable.line(text))
