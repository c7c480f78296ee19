"""Reads a shard file: all bytes that it returns are verified, and no file stays open between two reads."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from kittrain.rank.snapshots.files.shards import CorruptError, Piece, Shard, Tail
from kittrain.system.storage import detect_damage


class ShardFile:
    """A shard to read from. It opens the file for each read, so that many shards do not use up file descriptors.

    Args:
        path: the file.
        expected: the manifest's entry about it.

    Raises:
        CorruptError: the file is missing, or its size or its tail differs.
        OSError: it cannot be read at the moment.
    """

    def __init__(self, path: Path, expected: Shard) -> None:
        self._path = path
        self._expected = expected
        self._tail = self._read_tail()

    @cached_property
    def tail(self) -> Tail:
        """The shard's description of its data."""
        return Tail(
            pieces=tuple(_piece(facts) for facts in self._facts.pop("pieces")),
            extras={key: base64.b64decode(value) for key, value in self._facts.pop("extras").items()},
        )

    @property
    def pieces(self) -> Sequence[Piece]:
        """What the data are."""
        return self.tail.pieces

    def read(self, start: int, stop: int) -> bytearray:
        """A verified range of the data.

        Raises:
            CorruptError: the bytes differ from their checksum.
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
        """Read and check all of the data.

        Raises:
            CorruptError: some of it differs from its checksum.
            OSError: it cannot be read at the moment.
        """
        for number in range(len(self._facts["crc32"])):
            self.read_chunk(number)

    def read_chunk(self, number: int) -> bytes:
        """The bytes that one checksum covers. Raises as ``read`` does."""
        size: int = self._facts["chunk"]
        start = number * size
        with self._open() as descriptor:
            chunk = _pread(descriptor, start, min(start + size, self._expected.data))
        if zlib.crc32(chunk) != self._facts["crc32"][number]:
            differs = f"{self._path.name} differs from its checksum"
            raise CorruptError(f"{differs} between bytes {start} and {start + len(chunk)}")
        return chunk

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """The parsed tail. Parsed on first use: a check that a shard is complete does not need it."""
        facts: dict[str, Any] = json.loads(self._tail)
        self._tail = b""
        return facts

    def _read_tail(self) -> bytes:
        name, expected = self._path.name, self._expected
        with self._open() as descriptor:
            size = os.fstat(descriptor).st_size
            if size != expected.size:
                raise CorruptError(f"{name} has {size} bytes instead of {expected.size}")
            tail = _pread(descriptor, expected.data, expected.size)
        if hashlib.sha256(tail).hexdigest() != expected.sha256:
            raise CorruptError(f"the end of {name} differs from its digest")
        return tail

    @contextmanager
    def _open(self) -> Iterator[int]:
        with detect_damage(self._path, CorruptError):
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


@lru_cache(maxsize=1)  # consecutive small pieces share a chunk
def _last_chunk(shard: ShardFile, number: int) -> bytes:
    return shard.read_chunk(number)


def _pread(descriptor: int, start: int, stop: int) -> bytes:
    """Read a range in a loop: network file systems may return less than requested."""
    parts = []
    while start < stop and (part := os.pread(descriptor, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _piece(facts: dict[str, Any]) -> Piece:
    boxes = {key: tuple(facts[key]) for key in ("shape", "offsets", "sizes")}
    return Piece(**facts | boxes)
