"""A shard's data cut into blocks that can be read one after the other, so that reading it takes little memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kittrain.snapshots.shards import Piece

BLOCK: Final = 16 << 20  # bytes; a row of a tensor that is larger is a block of its own
GAP: Final = 4096  # bytes between two pieces that are read rather than skipped


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some rows of a piece: boxes along its first dimension. A piece without dimensions is one row.

    Attributes:
        piece: that they are of.
        first: index of the first row within the piece.
        count: how many.
    """

    piece: Piece
    first: int
    count: int

    @property
    def start(self) -> int:
        """The first byte, in the shard's data."""
        return self.piece.start + self.first * row_size(self.piece)

    @property
    def stop(self) -> int:
        """Behind the last byte."""
        return self.start + self.count * row_size(self.piece)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Neighbouring rows, of one piece or of several.

    Attributes:
        rows: in the order of their bytes; at least one.
    """

    rows: tuple[Rows, ...]

    @property
    def start(self) -> int:
        """The first byte, in the shard's data."""
        return self.rows[0].start

    @property
    def stop(self) -> int:
        """Behind the last byte."""
        return self.rows[-1].stop

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


def row_count(piece: Piece) -> int:
    """How many rows a piece has."""
    return piece.sizes[0] if piece.sizes else 1


def row_size(piece: Piece) -> int:
    """Bytes of a row; 0 of a piece without elements."""
    return (piece.stop - piece.start) // max(1, row_count(piece))


def everything(pieces: Iterable[Piece]) -> list[Rows]:
    """All rows of some pieces."""
    return [Rows(piece=piece, first=0, count=row_count(piece)) for piece in pieces]


def blocks(wanted: Iterable[Rows], *, size: int = BLOCK) -> Iterator[Block]:
    """Cut rows into blocks.

    Args:
        wanted: in the order of their bytes; those without a byte are left out.
        size: bytes of a block, at most, unless one row takes more.
    """
    begun: list[Rows] = []
    for rows in _cut(wanted, size):
        if begun and (rows.stop - begun[0].start > size or rows.start - begun[-1].stop > GAP):
            yield Block(rows=tuple(begun))
            begun = []
        begun.append(rows)
    if begun:
        yield Block(rows=tuple(begun))


def _cut(wanted: Iterable[Rows], size: int) -> Iterator[Rows]:
    for rows in wanted:
        if row := row_size(rows.piece):
            most = max(1, size // row)
            for first in range(rows.first, rows.first + rows.count, most):
                yield Rows(piece=rows.piece, first=first, count=min(most, rows.first + rows.count - first))
