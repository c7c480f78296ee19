"""Curves in a terminal, drawn with dots of Braille characters. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kitctl.base import printable
from kitctl.state.series import METRICS, Mark, Picture, Point, ticks, time_ticks, x_text

NARROWEST: Final = 40
HEIGHT: Final = 7  # rows of a panel
STAIRS_HEIGHT: Final = 3  # of one of few values
LABEL: Final = 9  # columns of the numbers at the left
COLOURS: Final = (36, 33, 32, 35, 34, 31)  # of the runs, as SGR codes
SIGNS: Final = {"fault": ("x", 31), "resized": ("+", 34), "snapshot": ("'", 90)}
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a character, by row and column
_BRAILLE: Final = 0x2800
_ASCII: Final = str.maketrans("│┤─┬└╎", "||-++:")


def chart(picture: Picture, *, width: int, colour: bool, unicode: bool = True) -> list[str]:
    """The lines of a picture.

    Args:
        picture: what is drawn.
        width: columns of the terminal.
        colour: whether runs and marks have colours.
        unicode: False: only ASCII, with stars.
    """
    width = max(width, NARROWEST)
    paint = _paint if colour else _plain
    lines = [*_legend(picture, paint)]
    for metric in picture.metrics:
        lines += ["", *_panel(picture, metric, width - LABEL - 2, paint, braille=unicode)]
    lines += _axis(picture, width - LABEL - 2, paint)
    return lines if unicode else [line.translate(_ASCII) for line in lines]


class _Canvas:
    """Dots, two columns and four rows a character; each remembers which run drew last."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = [[0] * width for _ in range(height)]
        self._owner = [[-1] * width for _ in range(height)]

    def line(self, begin: tuple[float, float], end: tuple[float, float], owner: int, *, every: int = 1) -> None:
        """From one place to another, which are from 0 to 1 to the right and up; or only every n-th column's dots."""
        columns, rows = 2 * self.width - 1, 4 * self.height - 1
        (x0, y0), (x1, y1) = ((x * columns, (1 - y) * rows) for x, y in (begin, end))
        count = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for index in range(count + 1):
            column = round(x0 + (x1 - x0) * index / count)
            if column % every == 0:
                self._dot(column, round(y0 + (y1 - y0) * index / count), owner)

    def rows(self, *, braille: bool) -> Iterator[list[tuple[str, int]]]:
        """Characters with the number of the run that they show, -1 for none."""
        for dots, owners in zip(self._dots, self._owner, strict=True):
            yield [
                ((chr(_BRAILLE + dot) if braille else "*") if dot else " ", owner)
                for dot, owner in zip(dots, owners, strict=True)
            ]

    def _dot(self, column: int, row: int, owner: int) -> None:
        if 0 <= column < 2 * self.width and 0 <= row < 4 * self.height:
            self._dots[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
            self._owner[row // 4][column // 2] = owner


Paint = Callable[[str, int], str]


def _plain(text: str, _code: int) -> str:
    return text


def _paint(text: str, code: int) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def _legend(picture: Picture, paint: Paint) -> Iterator[str]:
    counts = {kind: sum(mark.kind == kind for run in picture.runs for mark in run.marks) for kind in SIGNS}
    told = [
        f"{paint(sign, code)} {counts[kind]} {kind}{'s'[: counts[kind] != 1 and kind != 'resized']}"
        for kind, (sign, code) in SIGNS.items()
        if counts[kind]
    ]
    names = [printable.line(run.name) for run in picture.runs]
    if len(names) > 1:
        names = [_sample(index, paint) + f" {name}" for index, name in enumerate(names)]
    yield "   ".join(names)
    if told:
        yield "  ".join(told)


def _sample(index: int, paint: Paint) -> str:
    """What a run's curves look like: without colours, those after the first one are dotted, ever more thinly."""
    canvas = _Canvas(4, 1)
    canvas.line((0.0, 0.5), (1.0, 0.5), index, every=_every(index, paint))
    return paint("".join(sign for sign, _ in next(canvas.rows(braille=True))), COLOURS[index % len(COLOURS)])


def _every(index: int, paint: Paint) -> int:
    return 1 if paint is _paint else index + 1


def _panel(picture: Picture, metric: str, width: int, paint: Paint, *, braille: bool) -> Iterator[str]:
    kind = METRICS[metric]
    low, high, log = picture.bounds(metric)
    place = _place(picture, low, high, log=log)
    height = STAIRS_HEIGHT if kind.stairs else HEIGHT
    canvas = _Canvas(width, height)
    last: list[str] = []
    for index, run in enumerate(picture.runs):
        for part in run.curves[metric]:
            places = [place(one) for one in part]
            for begin, end in zip(places, [*places[1:], places[-1]], strict=True):
                canvas.line(begin, end, index, every=_every(index, paint))
        if run.curves[metric]:
            now = kind.show(run.curves[metric][-1][-1].y)
            last.append(paint(now, COLOURS[index % len(COLOURS)]) if len(picture.runs) > 1 else now)
    yield f"{kind.title}{' (log scale)' if log else ''}: {'  '.join(last)}"
    labels = {0: kind.show(high), height - 1: kind.show(low)}
    if not kind.stairs:
        labels[height // 2] = kind.show(math.sqrt(low * high) if log else (low + high) / 2)
    lost = _columns(picture, width, "fault")
    for number, row in enumerate(canvas.rows(braille=braille)):
        label = labels.get(number, "")
        yield f"{label:>{LABEL}} {'┤' if label else '│'}" + _painted(row, lost, paint, several=len(picture.runs) > 1)


def _painted(row: Sequence[tuple[str, int]], lost: set[int], paint: Paint, *, several: bool) -> str:
    """A row as text: faults are dotted lines behind the curves."""
    shown = []
    for column, (sign, owner) in enumerate(row):
        if sign == " " and column in lost:
            shown.append(paint("╎", SIGNS["fault"][1]))
        elif owner >= 0:
            code = COLOURS[owner % len(COLOURS)]
            shown.append(paint(sign, code) if several or paint is _paint else sign)
        else:
            shown.append(sign)
    return "".join(shown).rstrip()


def _axis(picture: Picture, width: int, paint: Paint) -> Iterator[str]:
    signs = [" "] * width
    for kind in ("snapshot", "resized", "fault"):  # what matters most is over the others
        sign, code = SIGNS[kind]
        for column in _columns(picture, width, kind):
            signs[column] = paint(sign, code)
    begin, end = picture.begin, picture.end
    line, labels = ["─"] * width, [" "] * (width + LABEL)
    for tick in (time_ticks if picture.by == "time" else ticks)(begin, end, max(width // 12, 2)):
        column = _column(tick, begin, end, width)
        text = x_text(picture, tick)
        if all(one == " " for one in labels[max(column - 1, 0) : column + len(text) + 1]):
            line[column] = "┬"
            labels[column : column + len(text)] = text
    indent = " " * (LABEL + 1)
    yield f"{indent}└{''.join(line)}"
    if any(one != " " for one in signs):
        yield f"{indent} {''.join(signs).rstrip()}"
    yield f"{indent} {''.join(labels).rstrip()}"
    yield f"{indent} {'time since the submission' if picture.by == 'time' else 'steps'}"


def _place(picture: Picture, low: float, high: float, *, log: bool) -> Callable[[Point], tuple[float, float]]:
    begin, end = picture.begin, picture.end

    def place(one: Point) -> tuple[float, float]:
        up = math.log(one.y / low) / math.log(high / low) if log else (one.y - low) / (high - low)
        return (one.x - begin) / ((end - begin) or 1), up

    return place


def _columns(picture: Picture, width: int, kind: str) -> set[int]:
    begin, end = picture.begin, picture.end
    marks: list[Mark] = [mark for run in picture.runs for mark in run.marks if mark.kind == kind]
    return {_column(mark.x, begin, end, width) for mark in marks if begin <= mark.x <= end}


def _column(x: float, begin: float, end: float, width: int) -> int:
    return min(round((x - begin) / ((end - begin) or 1) * (width - 1)), width - 1)
