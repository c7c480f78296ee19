"""One rank's part of each snapshot: copied and written in the background, or written while training waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from kittrain.rank.snapshots.files import layout, shards
from kittrain.rank.snapshots.files.finite import FiniteCheck
from kittrain.rank.snapshots.files.layout import BounceBuffer, Buffer, Layout
from kittrain.rank.snapshots.files.tree import Tensors, dump
from kittrain.rank.snapshots.folder.chain import Report, Written
from kittrain.rank.snapshots.write import planning
from kittrain.rank.snapshots.write.polling import wait_for_all
from kittrain.rank.world.distributed import World
from kittrain.system.heartbeat import Phase

BOUNCE_BUFFER: Final = 16 << 20  # bytes, if the state is not copied
PAUSE: Final = 1.0  # of the time that a copy took, until it is written: ranks that share cores have copied by then
LONGEST_PAUSE: Final = 0.05  # seconds


class Writer:
    """Collective: all ranks make one and call the same methods. One snapshot at a time.

    Args:
        world: all ranks.
        background: where to write; one job after the other.
        main_only: whether rank 0 writes everything.
    """

    def __init__(self, world: World, background: Executor, *, main_only: bool) -> None:
        self._world = world
        self._background = background
        self._part: Buffer | BounceBuffer | None = None
        self._report: Future[Report] | None = None
        self._hurry = threading.Event()  # training waits for what is being written
        self.main_only = main_only

    @property
    def idle(self) -> bool:
        """Whether this rank has nothing left to write."""
        return self._report is None or self._report.done()

    def prepare(self, tensors: Tensors) -> Buffer | BounceBuffer:
        """Allocate the memory for this rank's part of the state, unless it fits already."""
        if self._part is None or self._part.layout.structure != layout.structure(tensors):
            self._part = None  # free the old memory before allocating the new
            planned = planning.plan(self._world, tensors, main_only=self.main_only)
            size = planned.size if self._world.env.job.snapshots.copy else min(planned.size, BOUNCE_BUFFER)
            memory = layout.aligned_memory(size, pinned=self._world.device.type == "cuda")
            self._part = (
                Buffer(planned, memory) if self._world.env.job.snapshots.copy else BounceBuffer(planned, memory)
            )
        return self._part

    def begin(self, folder: Path, tensors: Tensors, extras: Mapping[str, Any]) -> None:
        """Start writing this rank's part of the state, or write it. ``reports`` was called for the previous one.

        Args:
            folder: is created.
            tensors: of the state; they may change as soon as this returns.
            extras: this rank's small values; they do not change any more. Rank 0 writes those of all ranks if it
                writes everything.
        """
        part = self.prepare(tensors)
        self._hurry.clear()
        pause = 0.0
        if isinstance(part, Buffer):
            began = time.monotonic()
            part.copy(tensors)
            pause = min(PAUSE * (time.monotonic() - began), LONGEST_PAUSE)
            data: Iterable[memoryview] = [part.data]
        else:
            data = self._with_heartbeats(part.stream(tensors))
        contents = partial(_serialize, extras)
        if self.main_only:
            contents = partial(_merge, self._world.gather(contents(), dict[str, bytes]))
        self._report = self._background.submit(self._write_after, pause, folder, data, part.layout, contents)
        if isinstance(part, BounceBuffer):
            wait_for_all(self._world, lambda: self.idle)

    def reports(self) -> list[Report]:
        """Wait for all ranks; returns what they have written, by rank, on rank 0."""
        self._hurry.set()
        wait_for_all(self._world, lambda: self.idle)
        mine = self._report.result() if self._report else None
        self._report = None
        return self._world.gather(mine, Report)

    def _write_after(self, pause: float, *shard: Any) -> Report:
        self._hurry.wait(pause)
        return self._write(*shard)

    def _write(
        self, folder: Path, data: Iterable[memoryview], planned: Layout, contents: Callable[[], Mapping[str, bytes]]
    ) -> Report:
        if self.main_only and not self._world.is_main:
            return None
        try:
            folder.mkdir(exist_ok=True)
            path, check = folder / shards.name(self._world.rank), FiniteCheck(planned.pieces, planned.trained)
            shard = shards.write(path, data, planned.pieces, contents(), check.add)
        except OSError as error:
            return error
        return Written(shard=shard, not_finite=check.problem)

    def _with_heartbeats(self, parts: Iterable[memoryview]) -> Iterator[memoryview]:
        """Write a heartbeat after each part, since training waits meanwhile."""
        for part in parts:
            yield part
            self._world.heartbeat.beat(Phase.SAVING)


def _serialize(extras: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: dump(value) for name, value in extras.items()}


def _merge(extras: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    return {name: content for one in extras for name, content in one.items()}
