"""Brings the newest snapshot of the mirror into the folder before the ranks look there. Collective.

Rank 0 starts a process for it, so that the library's threads and the credentials' checks stay out of the ranks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.listing import NOTHING, is_empty
from kittrain.rank.snapshots.write.polling import wait_for_all
from kittrain.rank.world.distributed import World
from kittrain.system.heartbeat import Phase
from kittrain.system.storage import StorageUnavailableError, retry_io

COMMAND: Final = (sys.executable, "-P", "-m", "kittrain.rank.snapshots.mirror", "fetch")


def fill(world: World, folder: Path, above: tuple[int, int] = NOTHING) -> None:
    """Fill an empty folder from the job's mirror, if it has one.

    Args:
        world: all ranks.
        folder: of the snapshots.
        above: generation and step of what the nodes have: only what is newer is of use.

    Raises:
        SnapshotError: the mirror cannot be used, and training from the start would leave what it has.
        StorageUnavailableError: the folder or the store does not answer.
    """
    if not world.env.job.snapshots.mirror:
        return
    started = world.attempt(lambda: _start(world, folder, above), StorageUnavailableError, SnapshotError)

    def done() -> bool:
        world.heartbeat.beat(Phase.RESTORING)  # the other ranks' hang detection waits for this
        return started is None or started.poll() is not None

    wait_for_all(world, done)

    def result() -> None:
        if started is not None and started.returncode:
            reason = started.communicate()[1].strip().splitlines()[-1:] or [f"it ended with {started.returncode}"]
            text = f"the newest snapshot of the mirror is not to be had: {reason[0]}"
            if above == NOTHING:
                raise SnapshotError(text) if started.returncode == 1 else StorageUnavailableError(text)
            world.print(f"warning: {text}")  # an older one is here

    world.attempt(result, SnapshotError, StorageUnavailableError)


def _start(world: World, folder: Path, above: tuple[int, int]) -> subprocess.Popen[str] | None:
    if not world.is_main:
        return None
    shared = world.env.job.snapshots.storage == "claim"  # else the nodes together have no snapshot that is whole
    if shared and not retry_io(lambda: is_empty(folder), folder, world.warn):
        return None
    return subprocess.Popen((*COMMAND, "--above", *map(str, above)), stderr=subprocess.PIPE, stdout=None, text=True)
