"""Text for an interpreter or a notebook, and a job's progress while one waits for it there."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kitctl.base import printable
from kitctl.state import summary
from kitctl.state.phase import JobState


class Page(str):
    """A text that an interpreter and a notebook show as it is, with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The text itself, without codes that could control a terminal."""
        return printable.text(str(self))

    def _repr_html_(self) -> str:
        return summary.pre(str(self))


def shown(states: Iterator[JobState]) -> Iterator[JobState]:
    """States, each printed if it says something new: over the one before where that is possible."""
    over, last = _overwrites(), ""
    try:
        for state in states:
            line = summary.line(state)
            if line != last:
                sys.stdout.write(f"\r{line:<{len(last)}}" if over else f"{line}\n")
                sys.stdout.flush()
            last = line
            yield state
    finally:
        if over and last:
            sys.stdout.write("\n")


def _overwrites() -> bool:
    """Whether a carriage return goes back to the line's start: in terminals and in notebooks."""
    return sys.stdout.isatty() or type(sys.stdout).__module__.startswith("ipykernel")
