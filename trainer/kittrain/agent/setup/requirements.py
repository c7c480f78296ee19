"""The packages that a job's script needs besides those of the image, installed once for all nodes.

They are in a folder whose name says what they were made of: the first node installs them, the others wait, and a node
that starts later finds them. On the claim each run has folders of its own, since ranks of all runs can write there, and
nobody can tell what others have made of theirs. On this machine they are in the user's cache, for all of the user's
jobs. Where there is no such place, each node installs them for itself. Only ranks import from that folder
(``kittrain.system.import_path``), never the agent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from kittrain.agent.setup.pip_install import RequirementsError, install, installed_packages
from kittrain.agent.setup.preparation import INSTALLING, preparing
from kittrain.agent.setup.workdir import unpack
from kittrain.job.env import NodeEnv
from kittrain.system.make_once import make_once
from kittrain.system.private_folder import private_folder
from kittrain.system.storage import retry_io

PACKAGES: Final = ".packages"  # among the snapshots; in it a folder for each run
SCRATCH: Final = "kit-packages"  # and the user's id: in the folder for temporary files, which only a pod has alone
KEY_LENGTH: Final = 24
Log = Callable[[str], None]


def required_packages(node: NodeEnv, log: Log) -> Path | None:
    """The folder with the job's requirements, installed unless that has been done; None if it has none.

    Raises:
        RequirementsError: they cannot be installed.
        RequirementsUnavailableError: they could not be installed now.
        CodeError: what was sent is damaged.
        StorageUnavailableError: the place of what was sent does not answer, or nothing can be written.
    """
    if not (sent := node.run.packages):
        return None
    digest, store = sent.digest, Path(sent.store)
    installed = installed_packages()
    name = key(digest, installed)
    make = partial(_install_reported, node, partial(_install, digest, store, installed, log), log)
    if shared := _shared(node):
        try:
            return _made(shared / name, make, log)
        except OSError as error:
            log(f"warning: {error}; installing the requirements for this node alone")
    try:
        folder = private_folder(Path(tempfile.gettempdir(), f"{SCRATCH}-{os.getuid()}")) / name
    except PermissionError as error:
        raise RequirementsError(f"requirements: {error}") from error
    return retry_io(lambda: _made(folder, make, log), folder, log)


def key(digest: str, installed: Mapping[str, str]) -> str:
    """The folder's name, from the requirements, and the interpreter with its packages, which are not repeated there."""
    made_of = [digest, sys.implementation.cache_tag, sysconfig.get_platform(), sorted(installed.items())]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:KEY_LENGTH]


def _shared(node: NodeEnv) -> Path | None:
    """Where all nodes of this run find the packages; None if there is no such place."""
    if cache := _cache(node):
        return Path(cache)
    return node.snapshot_dir / PACKAGES / node.run_id if node.snapshot_dir else None


def _cache(node: NodeEnv) -> str:
    return node.run.packages.cache if node.run.packages else ""


def _remove_older_runs(own: Path) -> None:
    """Remove the packages of earlier runs of this job, but for the last one, whose ranks may still be ending."""
    others = [path for path in own.parent.iterdir() if path != own]
    for path in sorted(others, key=lambda path: path.stat().st_mtime_ns)[:-1]:
        shutil.rmtree(path, ignore_errors=True)


def _made(folder: Path, make: Callable[[Path], None], log: Log) -> Path:
    if folder.is_dir():
        log("the requirements are installed already")
        return folder
    make_once(folder, make, waiting=lambda: log("waiting for another node, which installs the requirements"))
    return folder


def _install_reported(node: NodeEnv, make: Callable[[Path], None], log: Log, folder: Path) -> None:
    with preparing(INSTALLING, node, log):
        make(folder)
    if node.snapshot_dir and not _cache(node):
        with contextlib.suppress(OSError):  # what is left there costs space and nothing else
            _remove_older_runs(node.snapshot_dir / PACKAGES / node.run_id)


def _install(digest: str, store: Path, installed: Mapping[str, str], log: Log, folder: Path) -> None:
    started = time.monotonic()
    log("installing the requirements")
    with tempfile.TemporaryDirectory(prefix="kit-requirements-") as scratch:
        retry_io(partial(unpack, digest, store, Path(scratch)), store, log)
        added = install(Path(scratch), folder, installed, log)
    what = f"{' '.join(added)} installed in {time.monotonic() - started:.1f} s" if added else "all are there already"
    log(f"requirements: {what}")
