"""The stacks of ranks, as plain text: ranks at the same place once, frames of libraries folded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from kitctl.base import printable
from kitctl.state.frames import folded
from kitctl.state.stacks import NodeStacks, Place, places
from kitjob.stacks import StackFrame

MOST_THREADS: Final = 100  # that Python's faulthandler prints


def page(nodes: Sequence[NodeStacks], *, full: bool = False) -> list[str]:
    """The places where ranks are, the rarest first; with ``full`` all frames of all threads."""
    lines = [printable.line(f"node {one.node}: {one.note}") for one in nodes if one.note]
    for place in places(nodes):
        lines += [""] if lines else []
        lines += map(printable.line, _place(place, full=full))
    return lines


def _place(place: Place, *, full: bool) -> Iterator[str]:
    first = place.first
    what = [f"step {first.step}" if first.step else "", first.phase, f"waits in {first.wait}" if first.wait else ""]
    yield ", ".join([_who(place), *filter(None, what)])
    if first.note:
        yield f"  {first.note}"
    for thread in first.threads:
        if not thread.main and not full:
            continue
        if not thread.main:
            yield f"  thread {thread.name}".rstrip() + ":"
        yield from _frames(thread.frames, full=full, indent="  " if thread.main else "    ")
    if (others := len(first.threads) - 1) > 0 and not full:
        more = " or more" if len(first.threads) >= MOST_THREADS else ""
        yield f"  ({others}{more} further thread{'s' * (others > 1)}: --full)"


def _frames(frames: Sequence[StackFrame], *, full: bool, indent: str) -> Iterator[str]:
    shown = [*map(_line, frames)] if full else [_line(one) for one in folded(frames, file_of=_file)]
    yield from (indent + line for line in shown)


def _line(one: StackFrame | str) -> str:
    return one if isinstance(one, str) else f"{one.function}  {one.file}:{one.line}"


def _file(frame: StackFrame) -> str:
    return frame.file


def _who(place: Place) -> str:
    ranks = [rank.rank for _, rank in place.ranks]
    if len(ranks) == 1:
        ((node, rank),) = place.ranks
        return f"rank {rank.rank} (node {node}, process {rank.pid})"
    nodes = sorted({node for node, _ in place.ranks})
    where = f"nodes {_ranges(nodes)}" if len(nodes) > 1 else f"node {nodes[0]}"
    return f"ranks {_ranges(ranks)} ({where})"


def _ranges(numbers: Iterable[int]) -> str:
    """``0-3, 7``, of sorted numbers."""
    runs = [[one for _, one in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
