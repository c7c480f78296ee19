"""One rank's copies of its part of the state in main memory, in files that outlive it: the agent owns the folder.

There are two, so that the newest one that all ranks have is never overwritten. Each is a folder like a snapshot's,
with only this rank's shard, and has a snapshot's name while it is complete. ``memory_restore`` reads them.

Why: decision 16.
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

from kittrain.rank.snapshots.files import layout, shards
from kittrain.rank.snapshots.files.layout import Buffer, Layout
from kittrain.rank.snapshots.files.tree import Tensors, dump
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import SCRATCH, Manifest
from kittrain.rank.snapshots.write import planning
from kittrain.rank.world.distributed import World

COPIES: Final = 2


class MemoryCopies:
    """Collective: all ranks make one and call the same methods. If one rank has too little memory, none makes copies.

    Args:
        world: all ranks; its environment says where to put copies, and whether to make any.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._folder = world.env.memory_dir and world.env.memory_dir / str(world.env.local_rank)
        self._background = ThreadPoolExecutor(1, "memory")
        self._layout: Layout | None = None
        self._slots: deque[_Slot] = deque()  # the one to be overwritten next comes first
        self._copied = 0  # copies made so far
        self._allocated = 0  # slots that all ranks have memory for
        self._publishing: Future[bool] | None = None
        self._newest = ""
        self._enabled = world.env.snapshot_dir is not None and world.env.job.snapshots.memory_every_steps is not None

    @property
    def ready(self) -> bool:
        """Whether this rank can make its next copy: the last one is complete."""
        return self._enabled and (self._publishing is None or (self._publishing.done() and self._publishing.result()))

    def resume_from(self, manifest: Manifest) -> None:
        """Do not overwrite the copy that training resumes from until there is a newer one."""
        self._newest = manifest.name

    def prepare(self, tensors: Tensors) -> bool:
        """Allocate the memory for copies of such a state; returns whether copies are made."""
        if not self._enabled:
            return False
        if self._layout is None or self._layout.structure != layout.structure(tensors):
            self._layout = planning.plan(self._world, tensors, main_only=False)
            self._slots.clear()
            self._copied = self._allocated = 0
        if self._allocated <= self._copied < COPIES:
            self._allocated += 1
            self._disable_if_any_failed(self._allocate(self._layout))
        return self._enabled

    def copy(self, manifest: Manifest, tensors: Tensors, extras: Mapping[str, Any]) -> None:
        """Copy this rank's part of the state, and complete the copy in the background. All ranks are ``ready``.

        Args:
            manifest: of the state, without shards.
            tensors: of the state; they may change as soon as this returns.
            extras: this rank's small values; they do not change any more.
        """
        if not self.prepare(tensors):
            return
        slot = self._slots[0]
        self._slots.rotate(-1)
        self._copied += 1
        self._newest = manifest.name
        slot.copy(tensors)
        self._publishing = self._background.submit(self._publish, slot, manifest, extras)

    def close(self) -> None:
        """Complete the last copy."""
        self._background.shutdown()

    def _allocate(self, planned: Layout) -> str:
        """Allocate memory for copies, except where the newest one is; returns an error message or nothing."""
        try:
            if self._folder is None:
                return "the agent has provided no folder for them"
            self._slots = self._slots or deque(self._existing(self._folder))
            for slot in self._slots:
                if not slot.buffer and slot.path.name != self._newest:
                    slot.allocate(planned, self._world)
        except OSError as error:
            return f"2 x {planned.size / 2**20:.1f} MiB in {self._folder}: {error}"
        return ""

    def _existing(self, folder: Path) -> list[_Slot]:
        """Slots that reuse what exists already; the newest copy last."""
        folder.mkdir(parents=True, exist_ok=True)
        fresh = (folder / f"{SCRATCH}{number}" for number in range(COPIES))
        paths = list(dict.fromkeys([*folder.iterdir(), *fresh]))[:COPIES]
        return [_Slot(path) for path in sorted(paths, key=lambda path: path.name == self._newest)]

    def _disable_if_any_failed(self, problem: str) -> None:
        problems = [f"rank {rank}: {one}" for rank, one in enumerate(self._world.gather(problem, str)) if one]
        if problems := self._world.broadcast_value(problems, list[str]):
            fix = "more room in /dev/shm (sharedMemory), or no snapshots.memoryEverySteps"
            self._world.print(f"warning: the state is not copied to main memory: {problems[0]}; fix: {fix}")
            self._enabled = False
            self._slots.clear()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _publish(self, slot: _Slot, manifest: Manifest, extras: Mapping[str, Any]) -> bool:
        try:
            slot.publish(manifest, {name: dump(value) for name, value in extras.items()})
        except OSError as error:
            self._world.warn(f"no more copies of the state in main memory after step {manifest.step}: {error}")
            return False
        return True


class _Slot:
    """The folder and the memory of one copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.buffer: Buffer | None = None
        self._shard = ""

    def allocate(self, planned: Layout, world: World) -> None:
        """Allocate memory for a rank's part of the state. This invalidates the copy that was here.

        Raises:
            OSError: there is not enough.
        """
        self._invalidate()
        self.path.mkdir(exist_ok=True)
        self._shard = shards.name(world.rank)
        for other in self.path.glob("shard-*"):
            other.rename(self.path / self._shard)  # its pages are allocated already
        self.buffer = Buffer(planned, _mapped(self.path / self._shard, planned.size))

    def copy(self, tensors: Tensors) -> None:
        """Overwrite the previous contents with the state."""
        assert self.buffer
        self._invalidate()
        self.buffer.copy(tensors)

    def publish(self, manifest: Manifest, extras: Mapping[str, bytes]) -> None:
        """Add checksums and manifest, and give the copy its final name.

        Raises:
            OSError: one of them cannot be written.
        """
        assert self.buffer
        shard = shards.write_tail(self.path / self._shard, self.buffer.data, self.buffer.layout.pieces, extras)
        snapshot.write_manifest(self.path, replace(manifest, shards=(shard,)))
        complete = self.path.with_name(manifest.name)
        snapshot.publish(self.path, complete)
        self.path = complete

    def _invalidate(self) -> None:
        if not self.path.name.startswith(SCRATCH):
            self.path = self.path.rename(self.path.with_name(f"{SCRATCH}{self.path.name}"))


def _mapped(path: Path, size: int) -> Tensor:
    """A memory-mapped file in main memory as bytes, (size,), fully allocated, so that writing to it cannot fail.

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
