"""The node's working folder, unpacked from the folder that was sent with the job; standard library only.

A store is a folder (on a claim, or on this machine) or an archive (in a ConfigMap). ``trees/<sha256>.json`` in it says
which files the sent folder had, ``blobs/<sha256>`` has their content. Every digest is verified, so that a node that
starts later, or again, gets what the job was submitted with.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.variables import KIT_PRIVATE_FOLDER
from kittrain.job.env import NodeEnv
from kittrain.system import files
from kittrain.system.storage import detect_damage, retry_io

MARKER: Final = ".kit-workdir"  # in a folder that is unpacked; holds the tree's digest
CONFIG_MAP_DATA: Final = "..data"  # in each mounted ConfigMap: a link to the folder that has its files
COPY: Final = "kit-workdir"  # in the folder for temporary files, which only this pod sees
VERSION: Final = 1  # of a tree's format
PIECE: Final = 1 << 20  # bytes
TREE_BYTES: Final = 64 << 20  # the largest list of files that is read from an archive
FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
Store = Callable[[str], IO[bytes]]  # opens a file of the store by its name


class CodeError(Exception):
    """The job's folder is not in the store, or is not what was sent."""


@dataclass(frozen=True, kw_only=True)
class CodeFile:
    """A file of a tree."""

    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class CodeTree:
    """The files and symbolic links of a folder, by relative path."""

    version: int
    files: Mapping[str, CodeFile]
    links: Mapping[str, str]


def enter_workdir(node: NodeEnv, log: Callable[[str], None]) -> None:
    """Unpack the job's folder where this has not been done, and change to it.

    If single files were sent, which a ConfigMap shows read-only, change to a copy of these; otherwise stay.

    Raises:
        CodeError: the store lacks a file, or has another content.
        StorageUnavailableError: the store does not answer, or the working folder cannot be written.
    """
    own = True
    if code := node.run.code:
        workdir = Path(code.workdir)
        retry_io(partial(unpack, code.digest, Path(code.store), workdir), workdir, log)
        _change_to(workdir)
    elif (Path.cwd() / CONFIG_MAP_DATA).is_symlink():
        copy = Path(tempfile.gettempdir(), COPY)
        retry_io(partial(copy_files, Path.cwd(), copy), copy, log)
        _change_to(copy)
    else:
        own = node.run.restart_in_place  # a folder of the image, in a pod
    if own and (node.job.all_nodes > 1 or node.run.restart_in_place) and Path.cwd() != Path("/"):
        os.environ[KIT_PRIVATE_FOLDER] = str(Path.cwd())  # the ranks' hooks warn of checkpoints in it


def _change_to(folder: Path) -> None:
    os.chdir(folder)
    if "PWD" in os.environ:
        os.environ["PWD"] = str(folder)


def copy_files(source: Path, folder: Path) -> None:
    """Copy a mounted ConfigMap's files, whose paths are links there, unless this has been done.

    Raises:
        OSError: the files cannot be read, or the folder cannot be written.
    """
    marker = folder / MARKER
    if marker.is_file():
        return
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("..*"), dirs_exist_ok=True)
    marker.touch()


def unpack(digest: str, store: Path, folder: Path) -> None:
    """Write the files of a tree to a folder, unless it has been unpacked there already.

    Files of the tree that are there are replaced; others stay.

    Raises:
        CodeError: see ``enter_workdir``.
        OSError: the store cannot be read, or the folder cannot be written.
    """
    marker = folder / MARKER
    if marker.is_file() and marker.read_text("utf-8") == digest:
        return
    contents = open_store(store, digest)
    tree = _read_tree(contents, digest)
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in tree.files.items():
        _write(contents, file, _emptied(folder, name))
    for name, target in tree.links.items():
        if os.path.normpath(PurePosixPath(name).parent / target).startswith(("..", "/")):
            raise CodeError(f"the link {name} leads out of the working folder, to {target}")
        _emptied(folder, name).symlink_to(target)
    files.sync_file_system(folder)  # after a power cut, a marker without its files would run empty scripts
    files.replace(marker, digest.encode())


def open_store(path: Path, digest: str) -> Store:
    """A store that is a folder, or an archive of one tree; of that, no more is read than the tree declares.

    Raises:
        CodeError: there is none, it is damaged, or it has files that are larger than declared.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return lambda name: _open(path / name)
    with detect_damage(path, CodeError):
        content = path.read_bytes()
    try:
        declared = {f"trees/{digest}.json": TREE_BYTES}
        packed = _extract(content, declared)
        tree = _read_tree(lambda name: _member(path, packed, name), digest)
        declared = {f"blobs/{file.sha256}": file.size for file in tree.files.values()}
        packed |= _extract(content, declared)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise CodeError(f"{path} is damaged: {error}") from error
    return lambda name: _member(path, packed, name)


def _extract(content: bytes, declared: Mapping[str, int]) -> dict[str, bytes]:
    """The files of an archive that are declared, with the most bytes that each may have.

    Raises:
        CodeError: one is larger.
    """
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r|*") as archive:
        for one in archive:
            if one.name in declared and (part := archive.extractfile(one)):
                if one.size > declared[one.name]:
                    raise CodeError(f"{one.name} is larger than declared: {one.size} of {declared[one.name]} bytes")
                found[one.name] = part.read()
    return found


def _member(path: Path, packed: Mapping[str, bytes], name: str) -> IO[bytes]:
    if name not in packed:
        raise CodeError(f"{path} has no {name}")
    return io.BytesIO(packed[name])


def _open(path: Path) -> IO[bytes]:
    with detect_damage(path, CodeError):
        return path.open("rb")


def _read_tree(store: Store, digest: str) -> CodeTree:
    with store(f"trees/{digest}.json") as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() != digest:
        raise CodeError(f"tree {digest} has another content")
    try:
        tree: CodeTree = typed.load(CodeTree, content)
    except MalformedError as error:
        raise CodeError(f"tree {digest}: {error}") from error
    if tree.version != VERSION:
        raise CodeError(f"tree {digest} has format {tree.version}, and this kittrain reads {VERSION}")
    return tree


def _emptied(folder: Path, name: str) -> Path:
    """The path for a file or link, with its folder, and without leftovers of an interrupted attempt.

    Raises:
        CodeError: it is outside of the folder, or one of its folders is a link.
    """
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise CodeError(f"{name} is not in the working folder")
    path = folder / name
    for parent in PurePosixPath(name).parents[:-1]:
        if (folder / parent).is_symlink():
            raise CodeError(f"{parent} is a link in {folder}, and {name} would be written to where it leads: delete it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def _write(store: Store, file: CodeFile, path: Path) -> None:
    """Copy a file out of the store, and verify it."""
    found = hashlib.sha256()
    with store(f"blobs/{file.sha256}") as source, path.open("xb") as target:
        while piece := source.read(PIECE):
            found.update(piece)
            target.write(piece)
    if found.hexdigest() != file.sha256:
        raise CodeError(f"{path.name} is not as it was sent: its digest differs")
    path.chmod(PROGRAM_MODE if file.executable else FILE_MODE)
