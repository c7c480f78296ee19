"""The files in a rank's heartbeat: the first checkpoint that it saved to a private folder, and what it went on from.

A name may be read while it is written: readers use it for messages only. Standard library only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Self

_NAME: Final = 200  # bytes of a path; of a longer one the end is kept
_SAVED: Final = struct.Struct(f"<H{_NAME}s")
_LOADED: Final = struct.Struct(f"<H{_NAME}sI?d")
SIZE: Final = _SAVED.size + _LOADED.size


@dataclass(frozen=True, kw_only=True)
class LoadedFile:
    """The newest file that a rank loaded before it trained.

    Attributes:
        name: its path, relative to the working folder if it is in there.
        digest: of its size and some of its content; the same for equal files.
        private: whether ranks of other nodes do not see it.
        age: seconds since its last change, when it was loaded.
    """

    name: str
    digest: int
    private: bool
    age: float


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of one rank; ``saved`` is empty, and ``loaded`` None, if there is none."""

    saved: str = ""
    loaded: LoadedFile | None = None

    @classmethod
    def read(cls, page: bytes, offset: int) -> Self:
        """Read them from a heartbeat."""
        length, saved = _SAVED.unpack_from(page, offset)
        size, name, digest, private, age = _LOADED.unpack_from(page, offset + _SAVED.size)
        loaded = LoadedFile(name=_text(name, size), digest=digest, private=private, age=age) if size else None
        return cls(saved=_text(saved, length), loaded=loaded)


NO_FILES: Final = Files()


def write_saved(page: Any, offset: int, name: str) -> None:
    """Write the name of a checkpoint."""
    text = _bytes(name)
    _SAVED.pack_into(page, offset, len(text), text)


def write_loaded(page: Any, offset: int, file: LoadedFile) -> None:
    """Write what the rank went on from."""
    text = _bytes(file.name)
    _LOADED.pack_into(page, offset + _SAVED.size, len(text), text, file.digest, file.private, file.age)


def _bytes(name: str) -> bytes:
    return name.encode(errors="replace")[-_NAME:]


def _text(content: bytes, length: int) -> str:
    return content[:length].decode(errors="replace")
