"""Moves the borders of steps in a trace to where the optimizer's ranges end. Standard library only.

A step is marked from within the call of an optimizer, and so begins and ends inside of its range. Chrome shows ranges
of a thread that overlap; Perfetto drops those that do not nest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias

_NAMED: Final = re.compile(rb'"name": "(ProfilerStep#|Optimizer\.step#)')
_FIELD: Final = re.compile(rb'"(pid|tid|ts|dur)": ("[^"]*"|[\d.]+)')
_TIMES: Final = re.compile(rb'"ts": [\d.]+(?P<between>.*?)"dur": [\d.]+', re.DOTALL)
APART: Final = Decimal("0.002")  # microseconds: readers round sums of times to a nanosecond
Thread: TypeAlias = tuple[bytes, bytes]


class Range(NamedTuple):
    """A named range of a thread."""

    thread: Thread
    begin: Decimal
    end: Decimal
    is_step: bool


def calls(lines: Iterable[bytes]) -> dict[Thread, list[Range]]:
    """The calls of optimizers, by thread."""
    found = defaultdict(list)
    for _, one in _parts(lines):
        if one and not one.is_step:
            found[one.thread].append(one)
    return found


def nested(lines: Iterable[bytes], around: Mapping[Thread, Sequence[Range]]) -> Iterator[bytes]:
    """The trace, with steps that begin and end where the calls of optimizers end that they begin and end in."""
    for text, one in _parts(lines):
        if one is None or not one.is_step:
            yield text
            continue
        inside = around.get(one.thread, ())
        begin = next((call.end + 2 * APART for call in inside if call.begin <= one.begin <= call.end), one.begin)
        end = next((call.end + APART for call in inside if call.begin <= one.end <= call.end), one.end)
        yield _TIMES.sub(b'"ts": %b\\g<between>"dur": %b' % (str(begin).encode(), str(end - begin).encode()), text)


def _parts(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Range | None]]:
    """The text in pieces: a line, or the lines of a range from its name to its length."""
    held = b""
    for line in lines:
        if not held and not _NAMED.search(line):
            yield line, None
            continue
        held += line
        if b'"args"' in line or b"}" in line or b'"dur"' in line:
            yield held, _range(held)
            held = b""
    if held:
        yield held, None


def _range(text: bytes) -> Range | None:
    fields = dict[bytes, bytes](_FIELD.findall(text))
    if not {b"pid", b"tid", b"ts", b"dur"} <= fields.keys():
        return None
    begin = Decimal(fields[b"ts"].decode())
    end = begin + Decimal(fields[b"dur"].decode())
    return Range((fields[b"pid"], fields[b"tid"]), begin, end, b'"ProfilerStep#' in text)
