"""Makes a history shorter: neighbouring rows become one, then the oldest lines of the middle are dropped. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kitjob.record import replace
from kitjob.timeline import Dropped, Line, Row, Writer, content, encode

COARSEST: Final = 1 << 20  # seconds of a row
SLACK: Final = 0.002  # seconds between two rows that still touch, as times are rounded
FIRST_LINES: Final = 32  # that are never dropped: how the run began


def thin(found: Sequence[Line], limit: int) -> list[Line]:
    """The lines of a history within so many bytes, as far as that can be.

    Rows of any age become equally coarse, so that the beginning of a run stays as visible as its end; the sums of
    what they count do not change.
    """
    kept, seconds = list(found), 1.0
    while len(content(kept)) > limit and seconds < COARSEST:
        seconds *= 2
        kept = _coarser(kept, seconds)
    return _dropped(kept, limit)


def merged(one: Row, other: Row) -> Row:
    """Two rows of the same round, the second of which follows the first, as one."""
    phases = {name: one.phases.get(name, 0.0) + other.phases.get(name, 0.0) for name in {**one.phases, **other.phases}}
    return replace(
        other,
        seconds=one.seconds + other.seconds,
        steps=one.steps + other.steps,
        step=one.step if other.step is None else other.step,
        phases=phases,
        busy=one.busy + other.busy,
        memory=max(one.memory, other.memory),
        loss=one.loss if other.loss is None else other.loss,
        samples_per_second=_rate(one, other),
        epoch=one.epoch if other.epoch is None else other.epoch,
    )


def _coarser(found: Sequence[Line], seconds: float) -> list[Line]:
    """Rows that touch become one, up to so many seconds; nothing else may be between them."""
    kept: list[Line] = []
    for line in found:
        last = kept[-1] if kept else None
        if isinstance(line, Row) and isinstance(last, Row) and _joins(last, line, seconds):
            kept[-1] = merged(last, line)
        else:
            kept.append(line)
    return kept


def _joins(last: Row, line: Row, seconds: float) -> bool:
    same = last.round == line.round and last.world == line.world and last.seconds + line.seconds <= seconds
    forward = last.step is None or line.step is None or line.step >= last.step  # a step back shows a new training
    return same and forward and abs(line.time - line.seconds - last.time) <= SLACK


def _dropped(found: Sequence[Line], limit: int) -> list[Line]:
    """Without the oldest lines after the first ones, if all of them are too many."""
    size = len(content(found))
    if size <= limit:
        return list(found)
    kept, rest, gone = list(found[:FIRST_LINES]), list(found[FIRST_LINES:]), 0
    while len(kept) > 1 and len(content(kept)) > limit // 2:
        rest.insert(0, kept.pop())
    size += len(encode(Dropped(lines=len(found))))
    while rest and size > limit:
        line = rest.pop(0)
        gone += line.lines if isinstance(line, Dropped) else 1
        size -= len(encode(line))
        if isinstance(line, Writer):  # what follows belongs to it, and to nothing else
            while rest and not isinstance(rest[0], Writer):
                size, gone = size - len(encode(rest.pop(0))), gone + 1
    return [*kept, Dropped(lines=gone), *rest]


def _rate(one: Row, other: Row) -> float | None:
    """The mean throughput, weighted by time."""
    known = [row for row in (one, other) if row.samples_per_second is not None]
    total = sum(row.seconds for row in known)
    if not total:
        return None
    return sum((row.samples_per_second or 0.0) * row.seconds for row in known) / total
