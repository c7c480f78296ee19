"""One rank's part of a model file: its boxes of the tensors, written to their places in the file.

In a file each tensor is whole, in row-major order, so a box is one or several runs of bytes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

from kittrain.rank.snapshots.files import crc
from kittrain.rank.snapshots.files.shards import Piece

PROBE: Final = 4096  # bytes


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Some bytes that a rank has written, to be read back by another: offset in the file, number, and CRC-32."""

    start: int
    size: int
    checksum: int


@dataclass(kw_only=True)
class Part:
    """What a rank has written.

    Attributes:
        checksums: what its boxes add to each tensor's CRC-32, by name (``kittrain.rank.snapshots.files.crc``).
        probe: a sample; None if it has written nothing.
    """

    checksums: dict[str, int] = field(default_factory=dict)
    probe: Probe | None = None


def write(
    path: Path,
    pieces: Iterable[Piece],
    starts: Mapping[str, int],
    content: Callable[[Piece], memoryview],
) -> Part:
    """Write and sync some boxes of tensors.

    Args:
        path: the file, which exists.
        pieces: the boxes.
        starts: offset of each tensor in the file.
        content: a box's bytes, in row-major order; called for one after the other.

    Raises:
        OSError: writing failed.
    """
    part = Part()
    descriptor = os.open(path, os.O_WRONLY)  # not created: a newer generation may have deleted it
    try:
        for piece in pieces:
            data, at = content(piece), 0
            checksum = previous = 0
            for start, size in runs(piece):
                run = data[at : at + size]
                _write_at(descriptor, run, starts[piece.tensor] + start)
                checksum = crc.shifted(checksum, start + size - previous) ^ zlib.crc32(run)
                at, previous = at + size, start + size
                part.probe = part.probe or _probe(run, starts[piece.tensor] + start)
            whole = prod(piece.shape) * (len(data) // max(1, prod(piece.sizes)))
            part.checksums[piece.tensor] = part.checksums.get(piece.tensor, 0) ^ crc.shifted(checksum, whole - previous)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return part


def runs(piece: Piece) -> Iterator[tuple[int, int]]:
    """Where a box's bytes are in the whole tensor: offset and size of each run, in order."""
    elements = prod(piece.sizes)
    if not elements:
        return
    itemsize = (piece.stop - piece.start) // elements
    strides = [prod(piece.shape[dimension + 1 :]) * itemsize for dimension in range(len(piece.shape))]
    last = next((i for i in reversed(range(len(piece.shape))) if piece.sizes[i] != piece.shape[i]), 0)
    size = prod(piece.sizes[last:]) * itemsize  # the dimensions after this one are whole
    base = sum(offset * stride for offset, stride in zip(piece.offsets, strides, strict=True))
    for index in product(*map(range, piece.sizes[:last])):
        yield base + sum(i * stride for i, stride in zip(index, strides, strict=False)), size


def is_there(path: Path, probe: Probe) -> bool:
    """Whether this process reads what another has written.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(probe.start)
        return zlib.crc32(file.read(probe.size)) == probe.checksum


def _probe(run: memoryview, start: int) -> Probe:
    sample = run[:PROBE]
    return Probe(start=start, size=len(sample), checksum=zlib.crc32(sample))


def _write_at(descriptor: int, run: memoryview, start: int) -> None:
    while run:
        done = os.pwrite(descriptor, run, start)
        run, start = run[done:], start + done
