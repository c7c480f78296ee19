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
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from trainer.system import files

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
    """A shard, open for reading: a context.

    Args:
        path: the file.
        told: what the manifest says about it.

    Raises:
        CorruptError: it is missing, or its size or its tail differs.
        OSError: it cannot be read at the moment.
    """

    def __init__(self, path: Path, told: Shard) -> None:
        self._name = path.name
        self._told = told
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise CorruptError(f"{self._name} is missing") from error
        try:
            self._tail = self._read_tail()
        except BaseException:
            os.close(self._descriptor)
            raise
        self._chunk = lru_cache(maxsize=1)(self._read_chunk)  # small pieces share one

    @cached_property
    def pieces(self) -> Sequence[Piece]:
        """What the data are."""
        return [_piece(facts) for facts in self._facts["pieces"]]

    @cached_property
    def extras(self) -> dict[str, bytes]:
        """Small things by name."""
        return {key: base64.b64decode(value) for key, value in self._facts["extras"].items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, start: int, stop: int) -> bytearray:
        """Some of the data: these very bytes have been verified.

        Raises:
            CorruptError: they differ from their checksum.
            OSError: they cannot be read at the moment.
        """
        content = bytearray(stop - start)
        size: int = self._facts["chunk"]
        for number in range(start // size, -(-stop // size)):
            chunk, begin = self._chunk(number), number * size
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
            self._read_chunk(number)

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        """The tail, once somebody asks: who only wants to know that it is there holds nobody up."""
        facts: Mapping[str, Any] = json.loads(self._tail)
        return facts

    def _read_tail(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        if size != self._told.size:
            raise CorruptError(f"{self._name} has {size} bytes instead of {self._told.size}")
        tail = self._pread(self._told.data, self._told.size)
        if hashlib.sha256(tail).hexdigest() != self._told.sha256:
            raise CorruptError(f"the end of {self._name} differs from its digest")
        return tail

    def _read_chunk(self, number: int) -> bytes:
        size: int = self._facts["chunk"]
        start = number * size
        chunk = self._pread(start, min(start + size, self._told.data))
        if zlib.crc32(chunk) != self._facts["crc32"][number]:
            raise CorruptError(f"{self._name} differs from its checksum between bytes {start} and {start + len(chunk)}")
        return chunk

    def _pread(self, start: int, stop: int) -> bytes:
        """One call would do for a local file; a network's may give less."""
        parts = []
        while start < stop and (part := os.pread(self._descriptor, stop - start, start)):
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
