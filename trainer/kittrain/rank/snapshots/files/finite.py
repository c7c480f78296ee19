"""Finds NaN and infinity in the bytes of a shard while they are written. Needs no torch.

Floating-point numbers of one sign sort by magnitude if their bits are read as integers. So two maxima of integers show
whether a number is infinite or NaN: without a copy, and several times as fast as a checksum of the same bytes.

Why: decision 46.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kittrain.rank.snapshots.files.shards import Piece


@dataclass(frozen=True, kw_only=True)
class _Format:
    """A floating-point format: bytes of a number, and the bits of infinity; those of NaN are greater."""

    size: int
    infinity: int


_SINGLE: Final = _Format(size=4, infinity=0x7F80_0000)
_DOUBLE: Final = _Format(size=8, infinity=0x7FF0_0000_0000_0000)
FORMATS: Final = {
    "float16": _Format(size=2, infinity=0x7C00),
    "bfloat16": _Format(size=2, infinity=0x7F80),
    "float32": _SINGLE,
    "float64": _DOUBLE,
    "complex64": _SINGLE,  # two numbers each
    "complex128": _DOUBLE,
}  # by dtype; others are not checked


class FiniteCheck:
    """Checks a shard's data, which is added in parts that are split at multiples of a number's size.

    NaN is found in any tensor, infinity only in those that are trained: masks and the like may hold it on purpose.

    Args:
        pieces: what the data are, in order.
        trained: names of the tensors that are trained.

    Attributes:
        problem: the first finding, such as ``model/0.weight has nan``; empty if there is none.
    """

    def __init__(self, pieces: Iterable[Piece], trained: Collection[str]) -> None:
        self._pieces = [one for one in pieces if one.dtype in FORMATS and one.stop > one.start]
        self._trained = trained
        self._at = 0  # bytes so far
        self._next = 0  # index of the first piece that is not complete
        self.problem = ""

    def add(self, part: memoryview) -> None:
        """Check the next bytes; does nothing once there is a problem."""
        begin, self._at = self._at, self._at + len(part)
        while not self.problem and self._next < len(self._pieces):
            piece = self._pieces[self._next]
            if piece.start >= self._at:
                break
            low, high = max(piece.start, begin), min(piece.stop, self._at)
            found = kind_of_largest(part[low - begin : high - begin], piece.dtype)
            if found == "nan" or (found and piece.tensor in self._trained):
                self.problem = f"{piece.tensor} has {found}"
            if piece.stop > self._at:
                break
            self._next += 1


def kind_of_largest(numbers: memoryview, dtype: str) -> str:
    """``nan`` or ``inf`` if there is one among the numbers, NaN first; else empty.

    Args:
        numbers: at least one, as bytes.
        dtype: one of ``FORMATS``.
    """
    known = FORMATS[dtype]
    sign = 1 << (8 * known.size - 1)
    positive = int(np.frombuffer(numbers, f"i{known.size}").max())
    negative = int(np.frombuffer(numbers, f"u{known.size}").max())  # a sign bit makes it the greatest
    magnitude = max(positive, negative & (sign - 1))
    if magnitude < known.infinity:
        return ""
    return "inf" if magnitude == known.infinity else "nan"
