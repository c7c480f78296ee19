"""Folds lines of logs for people: equal lines of a rank, and the frames of libraries in its tracebacks. Pure.

Each rank is folded by itself, as the lines of several are mixed. The first of equal lines is shown at once; how many
followed is shown when another line comes. Frames of the user's are shown, and the one where a traceback ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from kitctl.state.frames import note, package_of
from kitctl.state.logs import Line

SHOWN_EQUAL: Final = 2  # equal lines that are shown as they are, after the first
_FRAME: Final = r'(?:\[rank\d+\]: ?)?  File "(.+)", line \d+'  # torch's hook for exceptions adds the rank
_CODE: Final = r"(?:\[rank\d+\]: ?)?    "


@dataclass
class _Frame:
    """A frame of a library, with its line of code and marks under it."""

    package: str
    lines: list[Line]


@dataclass
class _Rank:
    """What is held back of one rank.

    Attributes:
        equal: the lines that are equal to the last one shown, as far as they may be shown; and how many they are.
        count: see above.
        frames: of libraries, without one of the user's between them.
    """

    last: str | None = None
    equal: list[Line] = field(default_factory=list)
    count: int = 0
    frames: list[_Frame] = field(default_factory=list)


def folded(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, folded; a line that stands for others has the time of the last one."""
    ranks: dict[tuple[int, str], _Rank] = {}
    for line in lines:
        prefix = line.text[: len(line.text) - len(line.message)]
        rank = ranks.setdefault((line.node, prefix), _Rank())
        if line.text == rank.last:
            rank.count += 1
            rank.equal = [*rank.equal[: SHOWN_EQUAL - 1], line]
            continue
        yield from _repeated(rank, prefix)
        rank.last = None
        if frame := re.match(_FRAME, line.message):
            if package := package_of(frame[1]):
                rank.frames.append(_Frame(package, [line]))
                continue
        elif rank.frames and re.match(_CODE, line.message):
            rank.frames[-1].lines.append(line)
            continue
        yield from _frames(rank, prefix, keep_last=not frame)
        if not (frame or re.match(_CODE, line.message)):  # lines of code may well be equal: of a recursion
            rank.last = line.text
        yield line
    for (_, prefix), rank in ranks.items():
        yield from _repeated(rank, prefix)
        yield from _frames(rank, prefix, keep_last=True)


def folded_traceback(traceback: str) -> list[str]:
    """Its lines, with the frames of libraries folded, but for the one where it ends."""
    lines = (Line(time="", node=0, text=line) for line in traceback.rstrip().split("\n"))
    return [line.text for line in folded(lines)]


def _repeated(rank: _Rank, prefix: str) -> Iterator[Line]:
    """The equal lines that were held back, or their number."""
    if rank.count <= SHOWN_EQUAL:
        yield from rank.equal
    else:
        yield replace(rank.equal[-1], text=f"{prefix}... {rank.count:,} more like this")
    rank.equal, rank.count = [], 0


def _frames(rank: _Rank, prefix: str, *, keep_last: bool) -> Iterator[Line]:
    """The frames that were held back: their number, and with ``keep_last`` the one where the traceback ends."""
    frames, rank.frames = rank.frames, []
    shown = [frames.pop()] if keep_last and frames else []
    if frames:
        yield replace(frames[-1].lines[-1], text=f"{prefix}  {note(one.package for one in frames)}")
    for one in shown:
        yield from one.lines
