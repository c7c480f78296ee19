"""The last collective of a rank, as its heartbeat has it, and whether those of two ranks contradict each other. Pure.

All ranks of a group have to make the same calls in the same order. Two ranks that differ in their fifth call, or in the
bytes that they give to it, cannot both go on as they should: one hangs, is aborted, or ends with wrong numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Self

_TEXT: Final = 48  # bytes of what is exchanged, as people read it
_NAME: Final = 32  # bytes of the function
_NUMBER: Final = struct.Struct("<Q")  # the first of it
_CALL: Final = struct.Struct(f"<QIQiB{_NAME}sB{_TEXT}s")
SIZE: Final = _CALL.size
SENDS: Final = frozenset({"broadcast", "scatter"})  # functions whose root sends


@dataclass(frozen=True, kw_only=True)
class Call:
    """A collective of all ranks, as one of them called it.

    Attributes:
        number: of the calls of its group, from 1; 0: unknown.
        group: a checksum of the group's name.
        size: bytes that each rank has to give; 0: unknown, or they may differ.
        name: of the function; empty: the last call was none of all ranks.
        tensor: ``[2, 3] float32``.
        root: the rank of the group that sends to the others, or receives from them; -1: there is none.
    """

    number: int = 0
    group: int = 0
    size: int = 0
    name: str = ""
    tensor: str = ""
    root: int = -1

    @classmethod
    def read(cls, page: bytes, offset: int) -> Self:
        """Read it from a heartbeat."""
        number, group, size, root, named, name, length, text = _CALL.unpack_from(page, offset)
        decoded = name[:named].decode(errors="replace"), text[:length].decode(errors="replace")
        return cls(number=number, group=group, size=size, name=decoded[0], tensor=decoded[1], root=root)

    def write(self, page: Any, offset: int) -> None:
        """Write it to a heartbeat."""
        name, text = self.name.encode()[:_NAME], self.tensor.encode()[:_TEXT]
        numbers = self.number, self.group, self.size, self.root
        _CALL.pack_into(page, offset, *numbers, len(name), name, len(text), text)

    @staticmethod
    def count(page: Any, offset: int, number: int) -> None:
        """Write the number of a call that is else like the one that is written."""
        _NUMBER.pack_into(page, offset, number)

    def contradicts(self, other: Call) -> bool:
        """Whether the two cannot be the same collective, although each is its rank's call of that number."""
        same = (self.number, self.group) == (other.number, other.group)
        if not (same and self.number and self.name and other.name):
            return False
        return (
            self.name != other.name
            or self.root != other.root
            or (self.size != other.size and bool(self.size and other.size))
        )

    @property
    def given(self) -> str:
        """`` of [2, 3] float32 from rank 0``; empty if neither is known."""
        of = f" of {self.tensor}" if self.tensor else ""
        return of if self.root < 0 else f"{of} {'from' if self.name in SENDS else 'to'} rank {self.root}"

    def beside(self, other: Call) -> str:
        """Its name, with what is exchanged if that is the difference."""
        return f"{self.name}{self.given}" if self.name == other.name else self.name


NO_CALL: Final = Call()


def contradiction(calls: Sequence[tuple[int, Call]]) -> tuple[tuple[int, Call], tuple[int, Call]] | None:
    """Two ranks whose calls contradict each other: the odd one, and one of the majority; None if there are none."""
    pair = next(((one, two) for one, two in combinations(calls, 2) if one[1].contradicts(two[1])), None)
    if pair is None:
        return None
    alike = [sum(not mine.contradicts(two) for _, two in calls) for _, mine in pair]
    return pair if alike[0] < alike[1] else (pair[1], pair[0])
