"""What ranks wrote to their nodes' working folders, or to the shared one: where it is, and how it outlives the job."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kitctl.base.errors import KitError, TargetError
from kitctl.base.quantity import format_bytes
from kitctl.code.code_tree import CodeFile, CodeTree, tree_name
from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder
from kitctl.targets.local.records import SubmittedJob
from kitctl.targets.local.removal import remove, require_own

MARKER: Final = ".kit-workdir"  # written by kittrain.agent.setup.workdir, in a folder that is unpacked
CACHE: Final = "__pycache__"
KEPT: Final = (
    "outputs"  # in the state folder; kittrain.agent.setup.shared_outputs has one of this name among the snapshots
)


@dataclass(frozen=True, kw_only=True)
class KeptOutputs:
    """Outputs that outlive their job: in which folder, and how many files of how many bytes."""

    folder: Path
    files: int
    size: int

    def __str__(self) -> str:
        files = f"{self.files:,} file{'s'[: self.files != 1]}"
        return f"its outputs stay ({files}, {format_bytes(self.size)}): {self.folder}"


def place(folder: JobFolder, state: Path) -> str:
    """Where ranks write by relative path, for a user; empty if that is the folder that the job was submitted from."""
    if shared := _shared(folder, state):
        return str(shared)
    return str(folder.path / "nodes" / "<i>" / "workdir") if folder.job.code else ""


def keep(folder: JobFolder, state: Path) -> list[KeptOutputs]:
    """Move what the ranks of an ended job wrote out of its folder; the outputs that stay, in the order of their places.

    Files that were sent and have not changed are no outputs. What the nodes share stays where it is. An interrupted
    move is completed by the next one.

    Raises:
        TargetError: a file cannot be moved; nothing is lost.
    """
    job = _readable(folder)
    if job and not job.code:
        return []
    kept, sent = _kept(folder, state), _sent(folder)
    for node in folder.nodes():
        for path in _written(node.workdir, sent):
            if not (job and job.spec.outputs and path == node.workdir / job.spec.outputs):  # the link
                _move(path, kept / f"node-{node.index}" / path.relative_to(node.workdir))
    return [one for place in filter(None, (_shared(folder, state), kept)) if (one := _kept_in(place)).files]


def _kept_in(folder: Path) -> KeptOutputs:
    sizes = [path.lstat().st_size for path in _files(folder)]
    return KeptOutputs(folder=folder, files=len(sizes), size=sum(sizes))


def remove_kept(folder: JobFolder, state: Path) -> None:
    """Remove those outputs that are not in the job's folder: what nodes share, and those of an interrupted ``keep``.

    Raises:
        ConflictError: a folder of them is a link, or outside the state folder.
        TargetError: they cannot be removed.
    """
    for path in filter(None, (_shared(folder, state), _kept(folder, state))):
        if path.exists():
            require_own(path, state)
            remove(path)


def _readable(folder: JobFolder) -> SubmittedJob | None:
    """The record of a job; None if it is damaged: such a job can be deleted, too."""
    try:
        return folder.job
    except KitError:
        return None


def _kept(folder: JobFolder, state: Path) -> Path:
    """Where the outputs of a run are once its job is deleted."""
    job = _readable(folder)
    return state / KEPT / folder.path.parent.name / folder.path.name / (job.run if job else "unknown")


def _shared(folder: JobFolder, state: Path) -> Path | None:
    """The folder that the nodes of a job with ``--outputs`` share."""
    job = _readable(folder)
    snapshots = launch.snapshot_dir(job.spec, state) if job and job.spec.outputs else None
    return snapshots / KEPT / job.run if job and snapshots else None


def _sent(folder: JobFolder) -> CodeTree:
    """The files that were sent; none if that is unknown: then all are kept."""
    try:
        content = (folder.code_store / tree_name(folder.job.code)).read_bytes()
        return msgspec.json.decode(content, type=CodeTree)
    except (KitError, OSError, msgspec.MsgspecError):
        return CodeTree(files={})


def _written(workdir: Path, sent: CodeTree) -> Iterator[Path]:
    """The files and links of a working folder that are not as they were sent."""
    for path in list(_files(workdir)):
        name = path.relative_to(workdir).as_posix()
        link = sent.links.get(name)
        same = path.readlink() == Path(link) if link and path.is_symlink() else _same(path, sent.files.get(name))
        if name != MARKER and CACHE not in path.parts and not same:
            yield path


def _files(folder: Path) -> Iterator[Path]:
    """All files and links below a folder; no link is followed."""
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in files)
        yield from (path for name in folders if (path := Path(where, name)).is_symlink())


def _same(path: Path, sent: CodeFile | None) -> bool:
    """Whether a file has the content that was sent."""
    try:
        if sent is None or path.is_symlink() or path.stat().st_size != sent.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sent.sha256
    except OSError:
        return False


def _move(path: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    except OSError as error:
        fix = "move it yourself, or delete the outputs as well: --outputs"
        raise TargetError(f"{path} cannot be kept, so the job stays: {error.strerror}", fix=fix) from error
