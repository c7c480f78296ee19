"""The store of sent folders on a claim: ``python -m kittrain.code_store FOLDER missing|receive``.

``missing`` reads a JSON object from stdin, on one line: the size of each blob by its digest. It prints the digests of
those that the store lacks. ``receive`` reads a tar of blobs and trees from stdin, and stores what has the digest that
its name says. ``kittrain.node.workdir`` reads the store. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

_NAME: Final = re.compile(r"(?:blobs/([0-9a-f]{64})|trees/([0-9a-f]{64})\.json)")
READ_ONLY: Final = 0o444


class StoreError(Exception):
    """What was received is not what it should be."""


def missing(folder: Path, sizes: Mapping[str, int]) -> Iterator[str]:
    """The digests of the blobs that are not stored with that size."""
    for digest, size in sizes.items():
        path = folder / "blobs" / digest
        if not (path.is_file() and path.stat().st_size == size):
            yield digest


def receive(folder: Path, stream: IO[bytes]) -> int:
    """Store the files of a tar; returns their number. A file has its name only once it is complete.

    Raises:
        StoreError: the stream ends early, or a file's digest is not that of its name.
        OSError: a file cannot be written.
    """
    for name in ("blobs", "trees"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    count, last = 0, ""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                _store(folder, member.name, archive.extractfile(member))
                count, last = count + 1, member.name
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"what was received is no whole archive: {error}") from error
    if not last.startswith("trees/"):  # tarfile takes an archive that was cut between two files for a whole one
        raise StoreError("what was received is no whole archive: it has no tree")
    os.sync()  # once, not for each of thousands of files
    return count


def _store(folder: Path, name: str, content: IO[bytes] | None) -> None:
    match = _NAME.fullmatch(name)
    if match is None or content is None:
        raise StoreError(f"{name} is no file of a store")
    data = content.read()
    if hashlib.sha256(data).hexdigest() != (match[1] or match[2]):
        raise StoreError(f"{name} has another digest: it was damaged on the way")
    draft = folder / f".{uuid.uuid4().hex}"
    draft.write_bytes(data)
    draft.chmod(READ_ONLY)
    draft.replace(folder / name)


def main(argv: list[str]) -> None:
    """Run one of the two commands."""
    match argv:
        case [folder, "missing"]:
            sys.stdout.writelines(_lines(missing(Path(folder), json.loads(sys.stdin.buffer.readline()))))
        case [folder, "receive"]:
            try:
                sys.stdout.write(f"{receive(Path(folder), sys.stdin.buffer)}\n")
            except (StoreError, OSError) as error:
                sys.exit(str(error))
        case _:
            sys.exit("usage: python -m kittrain.code_store FOLDER missing|receive")


def _lines(words: Iterable[str]) -> Iterator[str]:
    return (f"{word}\n" for word in words)


if __name__ == "__main__":
    main(sys.argv[1:])
