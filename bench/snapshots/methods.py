"""Methods to take a snapshot of a training state: each begins one, and returns a check whether it is on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor, Order
from kittrain.system import files

Done = Callable[[], bool]
Method = Callable[[], Done]


def always() -> bool:
    """The snapshot is already on disk."""
    return True


class Methods:
    """All methods, for one state and one folder.

    Args:
        world: of size 1.
        state: to save.
        folder: on the disk to measure.
    """

    def __init__(self, world: World, state: State, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self._numbers = count()
        self._tensors, _ = state.capture()
        self._buffers = {name: torch.zeros_like(tensor) for name, tensor in self._tensors.items()}
        self._bytes = memoryview(os.urandom(sum(tensor.nbytes for tensor in self._tensors.values())))
        self._manager = SnapshotManager(world, state, Order(samples=1_000_000, batch=1))
        self._manager.restore()

    def copy(self) -> Done:
        """Copy the state in memory."""
        for name, tensor in self._tensors.items():
            self._buffers[name].copy_(tensor)
        return always

    def write(self) -> Done:
        """Write and fsync a file of the same size."""
        self._write(self._path())
        return always

    def write_async(self) -> Done:
        """Copy, and write in a thread: the least that any asynchronous method needs."""
        self.copy()
        thread = Thread(target=self.write)
        thread.start()
        return lambda: not thread.is_alive()

    def save(self) -> Done:
        """torch.save, fsync and rename, as in a careful script."""
        path = self._path()
        with path.open("wb") as file:
            torch.save(self._dict(), file)
            file.flush()
            os.fsync(file.fileno())
        path.rename(path.with_suffix(".pt"))
        files.sync_folder(self._folder)
        return always

    def dcp_save(self) -> Done:
        """Torch's distributed checkpoint."""
        dcp.save(self._dict(), checkpoint_id=self._path())
        return always

    def dcp_async(self, kind: AsyncCheckpointerType) -> Done:
        """Torch's distributed checkpoint, written by a thread or a process."""
        future: Any = dcp.async_save(self._dict(), checkpoint_id=self._path(), async_checkpointer_type=kind)
        return lambda: bool(future.done())

    def ours(self) -> Done:
        """The trainer's snapshot: copied, written, checksummed and published."""
        step = next(self._numbers) + 1
        self._manager.begin(Cursor(0, step), {})

        def done() -> bool:
            if self._manager.pending:
                self._manager.advance(written=self._manager.written)
            return self._manager.committed.step == step

        return done

    def clear(self) -> None:
        """Remove the files of all methods but the trainer's."""
        for path in self._folder.glob("other-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def free_pages(self) -> None:
        """Write and remove a file, so that recently used pages are free: a virtual machine is slow to get new ones.

        Otherwise a method would be four times as fast if the previous method's files have just been removed.
        """
        path = self._path()
        self._write(path)
        path.unlink()

    def _write(self, path: Path) -> None:
        """Write through the page cache, unlike the trainer."""
        with path.open("wb", buffering=0) as file:
            rest = self._bytes
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())

    def _dict(self) -> dict[str, Tensor | Any]:
        model, optimizer = get_state_dict(self._state.model, self._state.optimizers["optimizer"])
        return {"model": model, "optimizer": optimizer}

    def _path(self) -> Path:
        return self._folder / f"other-{next(self._numbers)}"
