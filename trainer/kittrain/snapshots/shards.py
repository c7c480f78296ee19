"""One shard file: the bytes of one rank's part of the state, and a tail that says what they are and vouches for them.

    data    the pieces' raw bytes, each aligned
    tail    JSON: what the pieces are, a CRC-32 for each chunk of the data, and small things beside them

The tail's SHA-256 is in the snapshot's manifest, so whatever part of a shard is read can be verified without reading
the rest. What the bytes mean to torch is known elsewhere (``kittrain.snapshots.layout`` and ``loading``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kittrain.system import files

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


def write(path: Path, data: Iterable[memoryview], pieces: Iterable[Piece], extras: Mapping[str, bytes]) -> Shard:
    """Write a shard through to the disk; it is checksummed in another thread at the same time.

    Args:
        path: the file.
        data: bytes, part by part; a part does not change until the next one is asked for.
        pieces: what they are.
        extras: small things by name.

    Raises:
        OSError: as the system said it.
    """
    sums = Sums()
    tail = b""

    def parts() -> Iterator[files.Buffer]:
        nonlocal tail
        for part in data:
            added = pool.submit(sums.add, part)
            yield part
            added.result()
        tail = _tail(pieces, extras, sums.all())
        yield tail

    with ThreadPoolExecutor(1, "checksums") as pool:
        files.write_parts(path, parts())
    return _shard(sums.size, tail)


def seal(path: Path, data: memoryview, pieces: Iterable[Piece], extras: Mapping[str, bytes]) -> Shard:
    """As ``write``, of data that the file holds already, in main memory: only the tail is written.

    Raises:
        OSError: as the system said it.
    """
    sums = Sums()
    sums.add(data)
    tail = _tail(pieces, extras, sums.all())
    with path.open("r+b") as file:
        file.seek(len(data))
        file.write(tail)
        file.truncate()
    return _shard(len(data), tail)


class Sums:
    """The checksums of a shard's data, which come in parts of any size.

    Attributes:
        size: bytes so far.
    """

    def __init__(self) -> None:
        self.size = 0
        self._sums: list[int] = []

    def add(self, part: memoryview) -> None:
        """The next bytes."""
        while part:
            within = self.size % CHUNK
            head, part = part[: CHUNK - within], part[CHUNK - within :]
            if within:
                self._sums[-1] = zlib.crc32(head, self._sums[-1])
            else:
                self._sums.append(zlib.crc32(head))
            self.size += len(head)

    def all(self) -> list[int]:
        """A CRC-32 for each chunk."""
        return self._sums


def _tail(pieces: Iterable[Piece], extras: Mapping[str, bytes], sums: list[int]) -> bytes:
    facts = {
        "pieces": [vars(piece) for piece in pieces],  # not asdict(): its copies take longest, beside a rank
        "extras": {key: base64.b64encode(value).decode() for key, value in extras.items()},
        "chunk": CHUNK,
        "crc32": sums,
    }
    return json.dumps(facts).encode()


def _shard(data: int, tail: bytes) -> Shard:
    return Shard(size=data + len(tail), data=data, sha256=hashlib.sha256(tail).hexdigest())
