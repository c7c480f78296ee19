"""One rank's copies of its part of the state in main memory, in files that outlive it: its agent owns the folder.

Two, so that the newest one that all ranks have is never overwritten. Each is a folder as a snapshot's is, with this
rank's shard alone, and bears a snapshot's name as long as it is whole. How ranks go on from them: ``recall``.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kittrain.snapshots import layout, shards, snapshot
from kittrain.snapshots.layout import Buffer, Layout
from kittrain.snapshots.snapshot import SCRATCH, Manifest
from kittrain.snapshots.tree import Tensors, dump
from kittrain.world.distributed import World

COPIES: Final = 2


class Memory:
    """Collective: all ranks make one and call the same methods. Where one of them has no room, none keeps any.

    Args:
        world: all ranks; its environment says where, and whether at all.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._folder = world.env.memory_dir and world.env.memory_dir / str(world.env.local_rank)
        self._background = ThreadPoolExecutor(1, "memory")
        self._layout: Layout | None = None
        self._slots: deque[_Slot] = deque()  # the one to be overwritten next comes first
        self._kept = 0  # copies, and
        self._taken = 0  # slots that all ranks have memory for
        self._sealing: Future[bool] | None = None
        self._newest = ""
        self._on = world.env.snapshot_dir is not None and world.env.memory_every is not None

    @property
    def sealed(self) -> bool:
        """Whether this rank can make its next copy: the last one is whole."""
        return self._on and (self._sealing is None or (self._sealing.done() and self._sealing.result()))

    def go_on_from(self, manifest: Manifest) -> None:
        """Overwrite last what training goes on from."""
        self._newest = manifest.name

    def prepare(self, tensors: Tensors) -> bool:
        """Take the memory for copies of such a state; whether there is any."""
        if not self._on:
            return False
        if self._layout is None or self._layout.structure != layout.structure(tensors):
            self._layout = layout.plan(self._world, tensors, main_only=False)
            self._slots.clear()
            self._kept = self._taken = 0
        if self._taken <= self._kept < COPIES:
            self._taken += 1
            self._agree(self._take(self._layout))
        return self._on

    def keep(self, manifest: Manifest, tensors: Tensors, extras: Mapping[str, Any]) -> None:
        """Copy this rank's part of the state, and seal it in the background; all ranks have sealed the one before.

        Args:
            manifest: of the state, without shards.
            tensors: the state's; they may change as soon as this returns.
            extras: this rank's small things; they do not change any more.
        """
        if not self.prepare(tensors):
            return
        slot = self._slots[0]
        self._slots.rotate(-1)
        self._kept += 1
        self._newest = manifest.name
        slot.copy(tensors)
        self._sealing = self._background.submit(self._seal, slot, manifest, extras)

    def close(self) -> None:
        """Seal what is not sealed yet."""
        self._background.shutdown()

    def _take(self, planned: Layout) -> str:
        """Take memory for copies, but for where the newest one lies; gives why there is none."""
        try:
            if self._folder is None:
                return "its agent has given it no folder for them"
            self._slots = self._slots or deque(self._found(self._folder))
            for slot in self._slots:
                if not slot.buffer and slot.path.name != self._newest:
                    slot.take(planned, self._world)
        except OSError as error:
            return f"twice {planned.size / 2**20:.1f} MiB in {self._folder}: {error}"
        return ""

    def _found(self, folder: Path) -> list[_Slot]:
        """What is there already is used again; the newest copy last."""
        folder.mkdir(parents=True, exist_ok=True)
        fresh = (folder / f"{SCRATCH}{number}" for number in range(COPIES))
        paths = list(dict.fromkeys([*folder.iterdir(), *fresh]))[:COPIES]
        return [_Slot(path) for path in sorted(paths, key=lambda path: path.name == self._newest)]

    def _agree(self, problem: str) -> None:
        told = [f"rank {rank}: {one}" for rank, one in enumerate(self._world.gather(problem, str)) if one]
        if told := self._world.broadcast_value(told, list[str]):
            self._world.print(f"warning: the state is not copied to main memory: {told[0]}")
            self._on = False
            self._slots.clear()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _seal(self, slot: _Slot, manifest: Manifest, extras: Mapping[str, Any]) -> bool:
        try:
            slot.seal(manifest, {name: dump(value) for name, value in extras.items()})
        except OSError as error:
            self._world.warn(f"no more copies of the state in main memory behind step {manifest.step}: {error}")
            return False
        return True


class _Slot:
    """The place of one copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.buffer: Buffer | None = None
        self._shard = ""

    def take(self, planned: Layout, world: World) -> None:
        """Have memory for a rank's part of the state. What was here is no copy any more.

        Raises:
            OSError: there is not enough.
        """
        self._unseal()
        self.path.mkdir(exist_ok=True)
        self._shard = shards.name(world.rank)
        for other in self.path.glob("shard-*"):
            other.rename(self.path / self._shard)  # its pages are there already
        self.buffer = Buffer(planned, _mapped(self.path / self._shard, planned.size))

    def copy(self, tensors: Tensors) -> None:
        """Copy the state over what was here."""
        assert self.buffer
        self._unseal()
        self.buffer.copy(tensors)

    def seal(self, manifest: Manifest, extras: Mapping[str, bytes]) -> None:
        """Make it a copy that vouches for itself.

        Raises:
            OSError: as the system said it.
        """
        assert self.buffer
        shard = shards.seal(self.path / self._shard, self.buffer.data, self.buffer.layout.pieces, extras)
        snapshot.seal(self.path, replace(manifest, shards=(shard,)))
        whole = self.path.with_name(manifest.name)
        snapshot.publish(self.path, whole)
        self.path = whole

    def _unseal(self) -> None:
        if not self.path.name.startswith(SCRATCH):
            self.path = self.path.rename(self.path.with_name(f"{SCRATCH}{self.path.name}"))


def _mapped(path: Path, size: int) -> Tensor:
    """A file of main memory as bytes, (size,): all of it is there, so that writing to it cannot fail.

    Raises:
        OSError: there is not enough.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        os.posix_fallocate(descriptor, 0, size)
        mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(descriptor)
    return torch.frombuffer(mapped, dtype=torch.uint8)
