"""Text for an interpreter or a notebook, and a job's progress while one waits for it there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kitctl.base import printable
from kitctl.output.view import notebook
from kitctl.state.phase import JobState

if TYPE_CHECKING:
    from kitctl.state.checks import Finding


class Page(str):
    """A text that an interpreter and a notebook show as it is, with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The text itself, without codes that could control a terminal."""
        return printable.text(str(self))

    def _repr_html_(self) -> str:
        return notebook.pre(str(self))


class Findings:
    """What checks find, each as it is made; an interpreter and a notebook make all of them, and show them.

    Args:
        made: the checks.
    """

    def __init__(self, made: Iterator[Finding]) -> None:
        self._made = made
        self._found: list[Finding] = []

    def __iter__(self) -> Iterator[Finding]:
        """Those that were made, then the others."""
        yield from self._found
        for finding in self._made:
            self._found.append(finding)
            yield finding

    def __repr__(self) -> str:
        """As ``kitctl doctor`` prints them."""
        from kitctl.output.view.doctor import lines  # noqa: PLC0415 - few commands need it

        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        return notebook.pre(repr(self))


def shown(states: Iterator[JobState]) -> Iterator[JobState]:
    """States, each printed if it says something new: over the one before where that is possible."""
    over, last = _overwrites(), ""
    try:
        for state in states:
            line = state.brief
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
