"""The folder that all nodes share for what the script writes, linked into each node's working folder.

It is below the snapshots, which all nodes see, and is named by the run: a node that replaces another finds what its
ranks wrote, and a job of the same name that is submitted again does not. Standard library only.

Why: decision 52.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kittrain.job.env import NodeEnv
from kittrain.system.make_once import make_once
from kittrain.system.storage import PERMANENT_ERRNOS, retry_io

OUTPUTS: Final = "outputs"  # among the snapshots, for the outputs of all runs; kitctl/targets/local/outputs.py, too
VARIABLE: Final = "KIT_OUTPUTS_DIR"  # for the ranks: the shared folder's absolute path


class OutputsError(Exception):
    """The place for the outputs is taken; the message has the fix."""


def share_outputs(node: NodeEnv, log: Callable[[str], None]) -> None:
    """Link the run's folder for outputs into the current folder, and set its path for the ranks; nothing without one.

    What is there already, sent with the job or part of the image, is copied to the shared folder once. With ``resume``
    the outputs of the latest earlier run become those of this one. A working folder that cannot be written gets no
    link, and a warning.

    Raises:
        OutputsError: the path is a file, a link or a mount, or leads out of the working folder.
        StorageUnavailableError: the shared folder cannot be made.
    """
    if not (node.job.outputs and node.snapshot_dir):
        return
    shared = node.snapshot_dir / OUTPUTS / node.run_id
    place = _place(Path.cwd(), node.job.outputs, shared)
    if node.job.resume:
        retry_io(partial(_continue, shared, log), shared, log)
    retry_io(partial(make_once, shared, partial(_seed, place)), shared, log)
    os.environ[VARIABLE] = str(shared)
    try:
        _link(place, shared)
    except OSError as error:
        if error.errno not in PERMANENT_ERRNOS:
            raise
        fix = f"have the script write to ${VARIABLE}, or send its folder with --workdir"
        log(f"warning: {place} cannot be made a link to the shared outputs ({error.strerror}): {fix}")


def _place(folder: Path, name: str, shared: Path) -> Path:
    """The path in the working folder, if it may become the link.

    Raises:
        OutputsError: see ``share_outputs``.
    """
    path = folder
    for part in Path(name).parts:
        path /= part
        linked = path == folder / name and path.is_symlink() and path.readlink().parent == shared.parent
        if part in {"..", "/"} or (path.is_symlink() and not linked):
            raise OutputsError(f"outputs: {path} is a link, or leads out of {folder}; fix: name another folder")
        if path.exists() and not path.is_dir():
            raise OutputsError(f"outputs: {path} is a file; fix: name a folder")
        if path.is_mount():
            raise OutputsError(f"outputs: {path} is a volume, which needs no --outputs; fix: leave that out")
    if path == folder:
        raise OutputsError(f"outputs: {name} is the working folder itself; fix: name a folder in it")
    return path


def _continue(shared: Path, log: Callable[[str], None]) -> None:
    """Rename the latest earlier run's folder, unless a node has done so; by one listing, so that all choose alike."""
    if not shared.parent.is_dir():
        return
    earlier = [path for path in shared.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    if not earlier or shared in earlier:
        return
    latest = max(earlier, key=lambda path: path.stat().st_mtime_ns)
    latest.rename(shared)
    log(f"continuing with the outputs of run {latest.name}")


def _seed(place: Path, folder: Path) -> None:
    """Copy what the working folder has there; no link is followed."""
    if place.is_dir() and not place.is_symlink():
        shutil.copytree(place, folder, symlinks=True, dirs_exist_ok=True)


def _link(place: Path, shared: Path) -> None:
    """Replace a folder, or the link of a former run, by the link; may be repeated after a crash."""
    aside = place.with_name(f".{place.name}.sent")
    if place.is_symlink() and place.readlink() == shared:
        return
    if place.is_symlink():
        place.unlink()
    elif place.is_dir():
        place.rename(aside)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(shared, target_is_directory=True)
    shutil.rmtree(aside, ignore_errors=True)
