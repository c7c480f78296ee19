"""Packs files of a tree as a tar archive with a store's layout, byte for byte the same each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from kitctl.code.code_tree import ARCHIVE_LIMIT, CodeTree, blob_name, tree_name
from kitctl.code.workdir.reading import changed

Read = Callable[[str], bytes]  # of the file at a path
SELDOM_SMALLER: Final = 20 * ARCHIVE_LIMIT  # bytes that gzip seldom gets below the limit


def small_archive(tree: CodeTree, read: Read) -> bytes | None:
    """The whole tree as a tar.gz; None if that is too large for a ConfigMap.

    Args:
        tree: the tree.
        read: reads the file at a path.

    Raises:
        SpecError: a file has changed since the tree was read.
        OSError: a file cannot be read.
    """
    if tree.size > SELDOM_SMALLER:
        return None
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as packed:
        for piece in tar_pieces(tree, sorted(tree.paths), read):
            packed.write(piece)
            if buffer.tell() > ARCHIVE_LIMIT:
                return None
    return buffer.getvalue() if buffer.tell() <= ARCHIVE_LIMIT else None


def tar_pieces(tree: CodeTree, blobs: Iterable[str], read: Read) -> Iterator[bytes]:
    """A tar of these blobs, by digest, and then of the tree itself; a piece for each. Raises as ``small_archive``."""
    total = 0
    for name, content in chain(_blobs(tree, blobs, read), [(tree_name(tree.digest), tree.encoded)]):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        piece = member.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE)
        total += len(piece)
        yield piece
    end = 2 * tarfile.BLOCKSIZE
    yield bytes(end + -(total + end) % tarfile.RECORDSIZE)


def _blobs(tree: CodeTree, blobs: Iterable[str], read: Read) -> Iterator[tuple[str, bytes]]:
    for digest in blobs:
        path = tree.paths[digest]
        content = read(path)
        if hashlib.sha256(content).hexdigest() != digest:
            raise changed(path)
        yield blob_name(digest), content
