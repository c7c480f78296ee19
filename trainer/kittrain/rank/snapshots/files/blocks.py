"""Splits a shard's data into blocks that are read one at a time, so that reading needs little memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kittrain.rank.snapshots.files.shards import Piece

BLOCK: Final = 16 << 20  # bytes; a row of a tensor that is larger is a block by itself
GAP: Final = 4096  # bytes: a gap between two pieces up to this size is read rather than skipped


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some rows of a piece: boxes along its first dimension. A piece without dimensions is one row.

    Attributes:
        piece: the piece that they belong to.
        first: index of the first row within the piece.
        count: number of rows.
    """

    piece: Piece
    first: int
    count: int

    @property
    def start(self) -> int:
        """Offset of the first byte in the shard's data."""
        return self.piece.start + self.first * row_size(self.piece)

    @property
    def stop(self) -> int:
        """Offset after the last byte."""
        return self.start + self.count * row_size(self.piece)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Neighbouring rows of one or several pieces.

    Attributes:
        rows: in the order of their bytes; at least one.
    """

    rows: tuple[Rows, ...]

    @property
    def start(self) -> int:
        """Offset of the first byte in the shard's data."""
        return self.rows[0].start

    @property
    def stop(self) -> int:
        """Offset after the last byte."""
        return self.rows[-1].stop

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


def row_count(piece: Piece) -> int:
    """Number of rows of a piece."""
    return piece.sizes[0] if piece.sizes else 1


def row_size(piece: Piece) -> int:
    """Bytes of a row; 0 for a piece without elements."""
    return (piece.stop - piece.start) // max(1, row_count(piece))


def all_rows(pieces: Iterable[Piece]) -> list[Rows]:
    """All rows of some pieces."""
    return [Rows(piece=piece, first=0, count=row_count(piece)) for piece in pieces]


def blocks(rows: Iterable[Rows], *, size: int = BLOCK) -> Iterator[Block]:
    """Group rows into blocks.

    Args:
        rows: in the order of their bytes; rows without bytes are skipped.
        size: maximum bytes of a block, unless a single row is larger.
    """
    pending: list[Rows] = []
    for part in _split(rows, size):
        if pending and (part.stop - pending[0].start > size or part.start - pending[-1].stop > GAP):
            yield Block(rows=tuple(pending))
            pending = []
        pending.append(part)
    if pending:
        yield Block(rows=tuple(pending))


def _split(rows: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Split rows so that each part has at most ``size`` bytes, but at least one row."""
    for part in rows:
        if row := row_size(part.piece):
            most = max(1, size // row)
            for first in range(part.first, part.first + part.count, most):
                yield Rows(piece=part.piece, first=first, count=min(most, part.first + part.count - first))
