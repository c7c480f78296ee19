"""Writes one shard file: the bytes of one rank's part of the state, and a tail that describes and checksums them.

    data    the pieces' raw bytes, each aligned
    tail    JSON: what the pieces are, a CRC-32 for each chunk of the data, and small extra values

The tail's SHA-256 is in the snapshot's manifest, so any part of a shard can be verified without reading the rest.
How the bytes relate to torch tensors is known to ``kittrain.rank.snapshots.files.layout`` and ``tensor_reader``.

Why: decision 12.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kittrain.system import files

CHUNK: Final = 4 << 20  # bytes per checksum in new shards


class CorruptError(Exception):
    """A snapshot is damaged; the message says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A box of a tensor, and where its bytes are in the data, in row-major order.

    Attributes:
        tensor: name, such as ``model/0.weight``.
        dtype: as torch names it, such as ``float32``.
        shape: of the whole tensor.
        offsets: of the box within it.
        sizes: of the box.
        start: offset of its first byte.
        stop: offset after its last byte.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A manifest's entry about a shard file: sizes in bytes of the file and its data, and the tail's SHA-256."""

    size: int
    data: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Tail:
    """A shard's description of its data, and small extra values by name."""

    pieces: tuple[Piece, ...]
    extras: Mapping[str, bytes]


def name(number: int) -> str:
    """The file name of a snapshot's shard, from 0 on."""
    return f"shard-{number:05}.bin"


def write(
    path: Path,
    data: Iterable[memoryview],
    pieces: Iterable[Piece],
    extras: Mapping[str, bytes],
    check: Callable[[memoryview], None] | None = None,
) -> Shard:
    """Write and sync a shard; another thread computes checksums at the same time.

    Args:
        path: the file.
        data: bytes, part by part; a part does not change until the next one is requested.
        pieces: what they are.
        extras: small values by name.
        check: also called with each part, in that thread.

    Raises:
        OSError: writing failed.
    """
    checksums = Checksums()
    tail = b""

    def inspect_part(part: memoryview) -> None:
        checksums.add(part)
        if check:
            check(part)

    def parts() -> Iterator[files.Buffer]:
        nonlocal tail
        for part in data:
            added = pool.submit(inspect_part, part)
            yield part
            added.result()
        tail = _tail(pieces, extras, checksums.values)
        yield tail

    with ThreadPoolExecutor(1, "checksums") as pool:
        files.write_parts(path, parts())
    return _shard(checksums.size, tail)


def write_tail(path: Path, data: memoryview, pieces: Iterable[Piece], extras: Mapping[str, bytes]) -> Shard:
    """As ``write``, for a file in main memory that holds the data already: writes only the tail.

    Raises:
        OSError: writing failed.
    """
    checksums = Checksums()
    checksums.add(data)
    tail = _tail(pieces, extras, checksums.values)
    with path.open("r+b") as file:
        file.seek(len(data))
        file.write(tail)
        file.truncate()
    return _shard(len(data), tail)


class Checksums:
    """The checksums of a shard's data, which is added in parts of any size.

    Attributes:
        size: bytes so far.
        values: a CRC-32 for each chunk so far.
    """

    def __init__(self) -> None:
        self.size = 0
        self.values: list[int] = []

    def add(self, part: memoryview) -> None:
        """Add the next bytes."""
        while part:
            within = self.size % CHUNK
            head, part = part[: CHUNK - within], part[CHUNK - within :]
            if within:
                self.values[-1] = zlib.crc32(head, self.values[-1])
            else:
                self.values.append(zlib.crc32(head))
            self.size += len(head)


def _tail(pieces: Iterable[Piece], extras: Mapping[str, bytes], checksums: list[int]) -> bytes:
    facts = {
        "pieces": [vars(piece) for piece in pieces],  # not asdict(): its deep copies slow training down
        "extras": {key: base64.b64encode(value).decode() for key, value in extras.items()},
        "chunk": CHUNK,
        "crc32": checksums,
    }
    return json.dumps(facts).encode()


def _shard(data: int, tail: bytes) -> Shard:
    return Shard(size=data + len(tail), data=data, sha256=hashlib.sha256(tail).hexdigest())
