"""Reads the files of a working folder: checks sizes and links, and computes digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from kitctl.base.errors import SpecError
from kitctl.base.quantity import format_bytes
from kitctl.code.code_tree import FILES_LIMIT, FOLDER_LIMIT, CodeFile, CodeTree, SentFolder
from kitctl.code.credentials import is_credential_file
from kitctl.code.workdir.patterns import wrong

SCANNED: Final = 1 << 20  # bytes; larger files are not searched for credentials
SHOWN: Final = 5  # of the largest files


def read_tree(folder: Path, paths: Iterable[str]) -> CodeTree:
    """The tree of these files and links.

    Raises:
        SpecError: there are none or too many, they are too large, or one cannot be sent.
        OSError: one cannot be read.
    """
    stats = {path: (folder / path).lstat() for path in paths}
    _check_names(stats)
    links = {path: _link(folder, path) for path, one in stats.items() if stat.S_ISLNK(one.st_mode)}
    regular = {path: one for path, one in stats.items() if path not in links}
    _check_names(links.values())
    _check(folder, regular, links=len(links))
    return CodeTree(files={path: file_of(folder / path, path) for path in regular}, links=links)


def credential_files(folder: Path, tree: CodeTree) -> Iterator[str]:
    """The files that look like credentials, by their names or, if they are small, by their content."""
    for path, one in tree.files.items():
        content = (folder / path).read_bytes() if one.size <= SCANNED else b""
        text = "" if b"\0" in content else content.decode(errors="replace")
        if is_credential_file(path, text):
            yield path


def largest(sizes: Mapping[str, int]) -> str:
    """The largest files, for a message: ``data.bin (1.5 GiB), model.pt (200 MiB)``."""
    paths = sorted(sizes, key=lambda path: (-sizes[path], path))[:SHOWN]
    return ", ".join(f"{path} ({format_bytes(sizes[path])})" for path in paths)


def _check_names(paths: Iterable[str]) -> None:
    """Raise an error for names that a message or a JSON document cannot hold as they are; of links and targets, too."""
    for path in paths:
        if not path.isprintable() or any("\udc80" <= letter <= "\udcff" for letter in path):
            raise wrong("workdir", f"{path!a} has letters that cannot be sent", "rename it, or list it in .kitignore")


def _check(folder: Path, stats: Mapping[str, os.stat_result], *, links: int) -> None:
    """Raise an error for what cannot be sent, before anything is read."""
    fix = "list what training does not need in .kitignore, or put data on a volume"
    if not stats:
        raise wrong("workdir", f"{folder} has no files to send", "choose the folder that has the script")
    for path, one in stats.items():
        if not stat.S_ISREG(one.st_mode):
            raise wrong("workdir", f"{path} is neither a file nor a link", "list it in .kitignore")
    if (count := len(stats) + links) > FILES_LIMIT:
        raise wrong("workdir", f"{count:,} files are more than the {FILES_LIMIT:,} that can be sent", fix)
    sizes = {path: one.st_size for path, one in stats.items()}
    if (total := sum(sizes.values())) > FOLDER_LIMIT:
        what = f"{format_bytes(total)} are more than the {format_bytes(FOLDER_LIMIT)} that can be sent"
        raise wrong("workdir", f"{what}; the largest: {largest(sizes)}", fix)


def content(sent: SentFolder, path: str) -> bytes:
    """The content of one of its files.

    Raises:
        OSError: it cannot be read.
    """
    place = sent.places.get(path, sent.folder / path)
    return place if isinstance(place, bytes) else place.read_bytes()


def file_of(path: Path, name: str) -> CodeFile:
    """A file as one of a tree; ``name`` is for messages.

    Raises:
        SpecError: it changes while it is read.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        state = os.fstat(file.fileno())
        if file.tell() != state.st_size:
            raise changed(name)
    return CodeFile(sha256=digest, size=state.st_size, executable=bool(state.st_mode & stat.S_IXUSR))


def changed(path: str) -> SpecError:
    """The error for a file that changes while it is read."""
    return wrong("workdir", f"{path} changed while it was read", "submit again once nothing writes to it")


def _link(folder: Path, path: str) -> str:
    """A link's target, relative to the link's folder.

    Raises:
        SpecError: it leads out of the folder.
    """
    link, root = folder / path, folder.resolve()
    target = link.readlink()
    real = Path(os.path.realpath(link))
    if not real.is_relative_to(root):
        fix = "copy what it leads to, or list the link in .kitignore"
        raise wrong("workdir", f"{path} is a link to {real}, outside of {folder}", fix)
    above = PurePosixPath(path).parent
    inside = os.path.normpath(above / target)
    if not target.is_absolute() and not inside.startswith(".."):
        return str(target)
    return os.path.relpath(real, os.path.realpath(link.parent))
