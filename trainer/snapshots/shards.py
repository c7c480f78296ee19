"""One shard file: the bytes of one rank's part of the state, and a tail that says what they are and vouches for them.

    data    the pieces' raw bytes, each aligned
    tail    JSON: what the pieces are, a CRC-32 for each chunk of the data, and small things beside them

The tail's SHA-256 is in the snapshot's manifest, so whatever part of a shard is read can be verified without reading
the rest. What the bytes mean to torch is known elsewhere (``trainer.snapshots.layout``, ``trainer.snapshots.loading``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from trainer.system import files
from trainer.system.storage import proof

CHUNK: Final = 4 << 20  # bytes: what is verified at once in a new shard


class CorruptError(Exception):
    """A snapshot is damaged; says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A box of a tensor, and the bytes of the data that hold it, in row-major order.

    Attributes:
        tensor: which one, such as ``model/0.weight``.
        dtype: as torch names it, such as ``float32``.
        shape: of the whole tensor.
        offsets: of the box within it.
        sizes: of the box.
        start: its first byte.
        stop: behind its last byte.
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
    """What a manifest says about a shard file: sizes in bytes, and the tail's SHA-256."""

    size: int
    data: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What a shard says about its data, and the small things that it holds beside them, by name."""

    pieces: tuple[Piece, ...]
    extras: Mapping[str, bytes]


def name(number: int) -> str:
    """The file of a snapshot's shard, from 0 on."""
    return f"shard-{number:05}.bin"


def write(path: Path, data: memoryview, pieces: Iterable[Piece], extras: Mapping[str, bytes]) -> Shard:
    """Write a shard through to the disk; it is checksummed in another thread at the same time.

    Args:
        path: the file.
        data: bytes that do not change meanwhile.
        pieces: what they are.
        extras: small things by name.

    Raises:
        OSError: as the system said it.
    """
    tail = b""

    def parts() -> Iterator[files.Buffer]:
        nonlocal tail
        yield data
        tail = _tail(pieces, extras, sums)
        yield tail

    with ThreadPoolExecutor(1, "checksums") as pool:
        sums = pool.map(zlib.crc32, _chunks(data))
        files.write_parts(path, parts())
    return _shard(data, tail)


def seal(path: Path, data: memoryview, pieces: Iterable[Piece], extras: Mapping[str, bytes]) -> Shard:
    """As ``write``, of data that the file holds already, in main memory: only the tail is written.

    Raises:
        OSError: as the system said it.
    """
    tail = _tail(pieces, extras, map(zlib.crc32, _chunks(data)))
    with path.open("r+b") as file:
        file.seek(len(data))
        file.write(tail)
        file.truncate()
    return _shard(data, tail)


class ShardFile:
    """A shard to read from; no file stays open between two reads, however many shards there are.

    Args:
        path: the file.
        told: what the manifest says about it.

    Raises:
        CorruptError: it is missing, or its size or its tail differs.
        OSError: it cannot be read at the moment.
    """

    def __init__(self, path: Path, told: Shard) -> None:
        self._path = path
        self._told = told
        self._tail = self._read_tail()

    @cached_property
    def tail(self) -> Tail:
        """What it says."""
        return Tail(
            pieces=tuple(_piece(facts) for facts in self._facts.pop("pieces")),
            extras={key: base64.b64decode(value) for key, value in self._facts.pop("extras").items()},
        )

    @property
    def pieces(self) -> Sequence[Piece]:
        """What the data are."""
        return self.tail.pieces

    def read(self, start: int, stop: int) -> bytearray:
        """Some of the data: these very bytes have been verified.

        Raises:
            CorruptError: they differ from their checksum.
            OSError: they cannot be read at the moment.
        """
        content = bytearray(stop - start)
        size: int = self._facts["chunk"]
        for number in range(start // size, -(-stop // size)):
            chunk, begin = _last_chunk(self, number), number * size
            low, high = max(start, begin), min(stop, begin + len(chunk))
            content[low - start : high - start] = memoryview(chunk)[low - begin : high - begin]
        return content

    def verify(self) -> None:
        """Read all of it.

        Raises:
            CorruptError: some of it differs from its checksum.
            OSError: it cannot be read at the moment.
        """
        for number in range(len(self._facts["crc32"])):
            self.read_chunk(number)

    def read_chunk(self, number: int) -> bytes:
        """What one checksum vouches for. Raises as ``read`` does."""
        size: int = self._facts["chunk"]
        start = number * size
        with self._opened() as descriptor:
            chunk = _pread(descriptor, start, min(start + size, self._told.data))
        if zlib.crc32(chunk) != self._facts["crc32"][number]:
            differs = f"{self._path.name} differs from its checksum"
            raise CorruptError(f"{differs} between bytes {start} and {start + len(chunk)}")
        return chunk

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """The tail, once somebody asks: who only wants to know that it is there holds nobody up."""
        facts: dict[str, Any] = json.loads(self._tail)
        self._tail = b""
        return facts

    def _read_tail(self) -> bytes:
        name, told = self._path.name, self._told
        with self._opened() as descriptor:
            size = os.fstat(descriptor).st_size
            if size != told.size:
                raise CorruptError(f"{name} has {size} bytes instead of {told.size}")
            tail = _pread(descriptor, told.data, told.size)
        if hashlib.sha256(tail).hexdigest() != told.sha256:
            raise CorruptError(f"the end of {name} differs from its digest")
        return tail

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with proof(self._path, CorruptError):
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


@lru_cache(maxsize=1)  # small pieces, one after the other, share one
def _last_chunk(shard: ShardFile, number: int) -> bytes:
    return shard.read_chunk(number)


def _pread(descriptor: int, start: int, stop: int) -> bytes:
    """One call would do for a local file; a network's may give less."""
    parts = []
    while start < stop and (part := os.pread(descriptor, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _chunks(data: memoryview) -> list[memoryview]:
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


def _tail(pieces: Iterable[Piece], extras: Mapping[str, bytes], sums: Iterable[int]) -> bytes:
    facts = {
        "pieces": [vars(piece) for piece in pieces],  # not asdict(): its copies take longest, beside a rank
        "extras": {key: base64.b64encode(value).decode() for key, value in extras.items()},
        "chunk": CHUNK,
        "crc32": list(sums),
    }
    return json.dumps(facts).encode()


def _shard(data: memoryview, tail: bytes) -> Shard:
    return Shard(size=len(data) + len(tail), data=len(data), sha256=hashlib.sha256(tail).hexdigest())


def _piece(facts: dict[str, Any]) -> Piece:
    boxes = {key: tuple(facts[key]) for key in ("shape", "offsets", "sizes")}
    return Piece(**facts | boxes)
