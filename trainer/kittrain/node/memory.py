"""The folder in main memory that a node's ranks copy their state to: it outlives them, and ends with the node.

What a killed agent leaves is used by the one that is started in its place; where none was for minutes, any other one
clears it away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kittrain.env import NodeEnv
from kittrain.system.claims import claim, clear, release
from kittrain.system.console import say

PREFIX: Final = "kit-memory-"
UNUSED: Final = 300.0  # seconds in which a killed agent is started again, if at all


@contextmanager
def memory_folder(node: NodeEnv) -> Iterator[None]:
    """Have a folder of the node's own, if the job asks for copies in memory, and tell the ranks where."""
    if node.memory_root is None:
        yield
        return
    folder = node.memory_root / _name(node)
    try:
        clear(node.memory_root, PREFIX, unused=UNUSED, but=folder)
        owner = claim(folder)
    except OSError as error:
        say(node.node_index, f"warning: no folder in {node.memory_root} for copies of the state: {error}")
        yield
        return
    os.environ["KIT_MEMORY_DIR"] = str(folder)  # the ranks inherit it
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        release(owner)


def _name(node: NodeEnv) -> str:
    """The same for the same node of the same run, and no other on this machine."""
    facts = node.namespace, node.job, node.run_id, str(node.snapshot_dir), node.node_index
    return f"{PREFIX}{node.job}-{node.node_index}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
