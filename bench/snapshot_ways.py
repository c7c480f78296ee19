"""Ways to take a snapshot, side by side: each begins one of a training state, and tells when it is on the disk."""

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

from kittrain.snapshots.history import History
from kittrain.snapshots.state import State
from kittrain.system import files
from kittrain.world.distributed import World
from kittrain.world.order import Cursor, Order

Done = Callable[[], bool]
Way = Callable[[], Done]


def always() -> bool:
    """Nothing is left to wait for."""
    return True


class Ways:
    """All of them, for one state and one folder.

    Args:
        world: this process alone.
        state: that is trained.
        folder: on the disk to measure.
    """

    def __init__(self, world: World, state: State, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self._numbers = count()
        self._tensors, _ = state.capture()
        self._buffers = {name: torch.zeros_like(tensor) for name, tensor in self._tensors.items()}
        self._bytes = memoryview(os.urandom(sum(tensor.nbytes for tensor in self._tensors.values())))
        self._history = History(world, state, Order(samples=1_000_000, batch=1))
        self._history.restore()

    def copy(self) -> Done:
        """Memory alone: what no way can do without."""
        for name, tensor in self._tensors.items():
            self._buffers[name].copy_(tensor)
        return always

    def write(self) -> Done:
        """The disk alone: a file of that size, written through."""
        self._write(self._path())
        return always

    def write_behind(self) -> Done:
        """What no way that writes behind training can do without: a copy, and the plain write in a thread."""
        self.copy()
        thread = Thread(target=self.write)
        thread.start()
        return lambda: not thread.is_alive()

    def save(self) -> Done:
        """What a careful script does: torch.save, fsync and rename."""
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
        """The same, with the writing in a thread or a process."""
        begun: Any = dcp.async_save(self._dict(), checkpoint_id=self._path(), async_checkpointer_type=kind)
        return lambda: bool(begun.done())

    def ours(self) -> Done:
        """The trainer's, as its loop takes them: copied, written, checksummed and published."""
        step = next(self._numbers) + 1
        self._history.begin(Cursor(0, step), {})

        def done() -> bool:
            if self._history.pending:
                self._history.advance(written=self._history.written)
            return self._history.committed.step == step

        return done

    def clear(self) -> None:
        """Remove what all but ours have written."""
        for path in self._folder.glob("other-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def make_room(self) -> None:
        """Have as many pages free as a snapshot takes, and just used: a virtual machine takes long to get others.

        Else who writes right after another one's files were removed is four times as fast as who does not.
        """
        path = self._path()
        self._write(path)
        path.unlink()

    def _write(self, path: Path) -> None:
        """Through the page cache, unlike what this project writes."""
        with path.open("wb", buffering=0) as file:
            rest = self._bytes
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())

    def _dict(self) -> dict[str, Tensor | Any]:
        model, optimizer = get_state_dict(self._state.model, self._state.optimizer)
        return {"model": model, "optimizer": optimizer}

    def _path(self) -> Path:
        return self._folder / f"other-{next(self._numbers)}"
