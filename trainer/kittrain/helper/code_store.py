"""The store of sent folders on a claim: ``python -m kittrain.helper.code_store FOLDER missing|receive``.

``missing`` reads a JSON object from stdin, on one line: the size of each blob by its digest. It prints the digests of
those that the store lacks. ``receive`` reads a tar of blobs and trees from stdin, and stores what has the digest that
its name says. ``kittrain.agent.setup.workdir`` reads the store. Standard library only.

A file has its name only once its content is on the disk: one that a power cut emptied would never be sent again.
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
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from kittrain.system import files

_NAME: Final = re.compile(r"(?:blobs/([0-9a-f]{64})|trees/([0-9a-f]{64})\.json)")
READ_ONLY: Final = 0o444


class StoreError(Exception):
    """What was received is not what it should be."""


def missing(folder: Path, sizes: Mapping[str, int]) -> Iterator[str]:
    """The digests of the blobs that are not stored, or have become damaged: ranks can write to the claim, too."""
    for digest, size in sizes.items():
        path = folder / "blobs" / digest
        if not (path.is_file() and path.stat().st_size == size and _digest(path) == digest):
            yield digest


def receive(folder: Path, stream: IO[bytes]) -> int:
    """Store the files of a tar; returns their number. Those before a fault are stored, too.

    Raises:
        StoreError: the stream ends early, or a file's digest is not that of its name.
        OSError: a file cannot be written.
    """
    for name in ("blobs", "trees"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    drafts: dict[Path, Path] = {}
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                drafts |= _draft(folder, member.name, archive.extractfile(member))
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"what was received is no whole archive: {error}") from error
    finally:
        _publish(folder, drafts)
    last = [*drafts.values()][-1:]  # tarfile takes an archive that was cut between two files for a whole one
    if not last or last[0].parent.name != "trees":
        raise StoreError("what was received is no whole archive: it has no tree")
    return len(drafts)


def _publish(folder: Path, drafts: Mapping[Path, Path]) -> None:
    """Give drafts their names, durably; remove those that a killed process left of the same files."""
    if drafts:
        files.sync_file_system(folder)  # once, not for each of thousands of files
    for draft, path in drafts.items():
        with suppress(FileNotFoundError):  # another process has stored the same, and removed this one
            draft.replace(path)
        for left in path.parent.glob(f".{path.name}.*"):
            left.unlink(missing_ok=True)
    for name in ("blobs", "trees"):
        files.sync_folder(folder / name)


def _draft(folder: Path, name: str, content: IO[bytes] | None) -> dict[Path, Path]:
    """Write a file under another name; returns both paths."""
    match = _NAME.fullmatch(name)
    if match is None or content is None:
        raise StoreError(f"{name} is no file of a store")
    data = content.read()
    if hashlib.sha256(data).hexdigest() != (match[1] or match[2]):
        raise StoreError(f"{name} has another digest: it was damaged on the way")
    path = folder / name
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("xb") as file:
            os.fchmod(file.fileno(), READ_ONLY)  # not by name: who has stored the same may have removed it already
            file.write(data)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return {draft: path}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
            sys.exit("usage: python -m kittrain.helper.code_store FOLDER missing|receive")


def _lines(words: Iterable[str]) -> Iterator[str]:
    return (f"{word}\n" for word in words)


if __name__ == "__main__":
    main(sys.argv[1:])
