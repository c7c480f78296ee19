"""The folder in main memory that a node's ranks copy their state to: it outlives them, and ends with the node.

What a killed agent leaves is used by the one that is started in its place, and cleared away by any other one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trainer.env import NodeEnv
from trainer.system.console import say

PREFIX: Final = "kit-memory-"
OWNER: Final = "owner"  # locked by the agent as long as it lives


@contextmanager
def memory_folder(node: NodeEnv) -> Iterator[None]:
    """Have a folder of the node's own, if the job asks for copies in memory, and tell the ranks where."""
    if node.memory_root is None:
        yield
        return
    folder = node.memory_root / _name(node)
    try:
        _clear(node.memory_root, but=folder)
        owner = _own(folder)
    except OSError as error:
        say(node.node_index, f"warning: no folder in {node.memory_root} for copies of the state: {error}")
        yield
        return
    os.environ["KIT_MEMORY_DIR"] = str(folder)  # the ranks inherit it
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def _name(node: NodeEnv) -> str:
    """The same for the same node of the same run, and no other on this machine."""
    facts = node.namespace, node.job, node.run_id, str(node.snapshot_dir), node.node_index
    return f"{PREFIX}{node.job}-{node.node_index}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def _clear(root: Path, *, but: Path) -> None:
    """Remove what agents have left that were killed."""
    for folder in root.glob(f"{PREFIX}*"):
        if folder != but:
            with suppress(OSError):  # another user's, or its agent lives
                os.close(_own(folder))
                shutil.rmtree(folder)


def _own(folder: Path) -> int:
    """Make a folder, or take one over that nobody owns; gives the descriptor that holds it.

    Raises:
        OSError: it belongs to an agent that lives, or there is no place for it.
    """
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock's, no lock of the ranks, too
        except OSError:
            os.close(descriptor)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), (folder / OWNER).stat()):
                return descriptor
        os.close(descriptor)  # somebody was just clearing it away
