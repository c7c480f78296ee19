"""The in-memory folder (tmpfs) for the ranks' in-memory snapshots; it outlives the ranks, and is deleted by the agent.

After a kill, the restarted agent uses the same folder. If there is none for minutes, any other agent deletes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kittrain.job.env import NodeEnv
from kittrain.system.console import log
from kittrain.system.folder_locks import lock, remove_unused, unlock

PREFIX: Final = "kit-memory-"
UNUSED: Final = 300.0  # seconds; a killed agent is restarted within them, if at all


@contextmanager
def memory_folder(node: NodeEnv) -> Iterator[None]:
    """Create the node's folder if the job uses in-memory snapshots, and set KIT_MEMORY_DIR for the ranks."""
    if node.memory_root is None:
        yield
        return
    folder = node.memory_root / _name(node)
    try:
        remove_unused(node.memory_root, PREFIX, unused=UNUSED, but=folder)
        owner = lock(folder)
    except OSError as error:
        log(node.node_index, f"warning: no in-memory snapshots: cannot create a folder in {node.memory_root}: {error}")
        yield
        return
    os.environ["KIT_MEMORY_DIR"] = str(folder)  # the ranks inherit it
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        unlock(owner)


def _name(node: NodeEnv) -> str:
    """A name that is unique on this host, and the same for each run of this node's agent."""
    facts = node.job.namespace, node.job.name, node.run_id, str(node.snapshot_dir), node.node_index
    return f"{PREFIX}{node.job.name}-{node.node_index}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
