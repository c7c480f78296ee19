"""Text within a terminal's width: lines are wrapped, and columns give way by need. Pure."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final
from unicodedata import combining, east_asian_width

from kitctl.base import printable

GAP: Final = "   "
INDENT: Final = "  "  # of what continues a row
ELLIPSIS: Final = "…"
_BARS: Final = "▁▂▃▄▅▆▇█"
_COLOUR: Final = r"\x1b\[[0-9;]*m"
TEXT: Final = "REASON"
LEAST: Final = 16  # cells for a text next to a name, below which it goes under it


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def padded(text: str, width: int) -> str:
    """Left-aligned."""
    return text + " " * (width - cells(text))


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The lines of a text, broken between words, and within one that is too long; all but the first are indented."""
    room = max(width - len(indent), 1)
    lines = [piece for line in textwrap.wrap(text, room, break_on_hyphens=False) for piece in _cut(line, room)]
    return [lines[0], *(indent + line for line in lines[1:])] if lines else [""]


def _cut(line: str, width: int) -> Iterator[str]:
    """A line that has wide characters, in pieces that fit."""
    while cells(line) > width:
        fits = sum(1 for taken in accumulate(map(cells, line)) if taken <= width) or 1
        yield line[:fits]
        line = line[fits:]
    yield line


def clipped(line: str, width: int) -> str:
    """A line that fits, colours included."""
    if cells(re.sub(_COLOUR, "", line)) <= width:
        return line
    text, taken = "", 0
    for piece in re.findall(f"{_COLOUR}|.", line, re.DOTALL):
        taken += 0 if piece.startswith("\x1b") else cells(piece)
        if taken <= width - 1 or piece.startswith("\x1b"):
            text += piece
    return text + ELLIPSIS


def sparkline(values: Sequence[float | None], width: int) -> str:
    """A curve in a row, of at most so many columns; empty if nothing changes or is known."""
    known = [one for one in values if one is not None and math.isfinite(one)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high <= low:
        return ""
    size = -(-len(known) // width)
    means = [sum(known[at : at + size]) / len(known[at : at + size]) for at in range(0, len(known), size)]
    return "".join(_BARS[min(int((one - low) / (high - low) * len(_BARS)), len(_BARS) - 1)] for one in means)


def facts(rows: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Names and texts, a line each; within a width with as many lines as a text takes."""
    start = max(len(name) for name, _ in rows) + len(GAP)
    lines = []
    for name, text in rows:
        line = printable.line(f"{name:<{start}}{text}")
        if width is None or cells(line) <= width:
            lines.append(line)
        elif width - start < LEAST:
            lines += [name, *(INDENT + one for one in wrapped(printable.line(text), width - len(INDENT)))]
        else:
            first, *rest = wrapped(printable.line(text), width - start)
            lines += [f"{name:<{start}}{first}", *(" " * start + one for one in rest)]
    return lines


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None, spare: Sequence[str] = ()
) -> list[str]:
    """Left-aligned columns without trailing spaces; line breaks in cells are escaped.

    Args:
        header: the names of the columns.
        rows: their cells.
        width: in columns of the terminal; None: any. Within a width columns without a value are left out, the texts of
            a last column ``TEXT`` go under their rows if they do not fit, and then ``spare`` columns are left out.
        spare: names of columns that may be left out, the first of them first.
    """
    shown = [*map(str, header)], [[printable.line(cell) for cell in row] for row in rows]
    if width is None:
        return _aligned(*shown)
    kept = [place for place, _ in enumerate(header) if place == 0 or any(row[place] not in {"", "-"} for row in rows)]
    names, body = [header[place] for place in kept], [[row[place] for place in kept] for row in shown[1]]
    under = [""] * len(body)
    if names[-1] == TEXT and _width(names, body) > width:
        names, under, body = names[:-1], [row[-1] for row in body], [row[:-1] for row in body]
    for name in spare:
        if _width(names, body) > width and name in names:
            place = names.index(name)
            names, body = [*names[:place], *names[place + 1 :]], [[*row[:place], *row[place + 1 :]] for row in body]
    head, *lines = _aligned(names, body)
    found = _fitted(head, width)
    for line, text in zip(lines, under, strict=True):
        found += _fitted(line, width)
        found += [INDENT + one for one in wrapped(text, width - len(INDENT))] if text else []
    return found


def _fitted(row: str, width: int) -> list[str]:
    return [row] if cells(row) <= width else wrapped(row, width, INDENT)


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(cells(row[place]) for row in [header, *rows]) for place in range(len(header))]


def _width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(_widths(header, rows)) + len(GAP) * (len(header) - 1)


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = _widths(header, rows)
    return [GAP.join(map(padded, row, widths)).rstrip() for row in [header, *rows]]
