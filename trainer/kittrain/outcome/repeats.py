"""Errors of the code alone that come again at the same place. Pure. Why: decision 33."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kittrain.outcome.causes import UNKNOWN
from kittrain.outcome.code_errors import is_of_code
from kittrain.outcome.failures import NO_SNAPSHOT, Failure

MOST: Final = 64  # that are remembered


@dataclass(frozen=True, kw_only=True)
class Place:
    """How far the ranks of a node were when they failed, and what they had begun with.

    Attributes:
        world: ranks of the job.
        steps: that they had taken in this round, or, of the library's loop, in all.
        loaded: when the newest file that they went on from was last changed, in nanoseconds; 0: none.
        newest: snapshot, as ``newest_snapshot`` returns it.
    """

    world: int
    steps: int
    loaded: int = 0
    newest: tuple[int, int] | None = NO_SNAPSHOT


class Repeats:
    """The errors that a node's ranks have failed with so far, also where another node's had failed before them.

    Failures of a known cause are none, unless its row says so: what passes is among them.
    """

    def __init__(self) -> None:
        self._known: set[tuple[tuple[str, str], Place]] = set()

    def come_again(self, failure: Failure, place: Callable[[], Place]) -> bool:
        """Whether this error of the code was noted before at this place."""
        return _is_of_code(failure) and (failure.signature, place()) in self._known

    def note(self, failures: Iterable[Failure], place: Callable[[], Place]) -> None:
        """Remember those of the code, of a round that has ended."""
        found = [one.signature for one in failures if _is_of_code(one)]
        if found and len(self._known) < MOST:
            here = place()
            self._known.update((one, here) for one in found)


def _is_of_code(failure: Failure) -> bool:
    return failure.cause.of_code or (failure.cause == UNKNOWN and is_of_code(failure.error, failure.traceback))
