"""One rank's part of each snapshot: copied at once and written in the background, or written while training waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from kittrain.snapshots import layout, shards
from kittrain.snapshots.chain import Report
from kittrain.snapshots.layout import Buffer, Layout, Window
from kittrain.snapshots.patience import wait
from kittrain.snapshots.tree import Tensors, dump
from kittrain.system.heartbeat import Phase
from kittrain.world.distributed import World

WINDOW: Final = 16 << 20  # bytes that pass through memory at once where the state is not copied


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
        self._part: Buffer | Window | None = None
        self._report: Future[Report] | None = None
        self.main_only = main_only

    @property
    def ended(self) -> bool:
        """Whether this rank has nothing left to write."""
        return self._report is None or self._report.done()

    def prepare(self, tensors: Tensors) -> Buffer | Window:
        """Take the memory for this rank's part of the state, where that has not been done for such a state."""
        if self._part is None or self._part.layout.structure != layout.structure(tensors):
            self._part = None  # what it takes is free before the next one is taken
            planned = layout.plan(self._world, tensors, main_only=self.main_only)
            size = planned.size if self._world.env.snapshot_copy else min(planned.size, WINDOW)
            memory = layout.memory(size, pinned=self._world.device.type == "cuda")
            self._part = Buffer(planned, memory) if self._world.env.snapshot_copy else Window(planned, memory)
        return self._part

    def begin(self, folder: Path, tensors: Tensors, extras: Mapping[str, Any]) -> None:
        """Begin to write this rank's part of the state, or write it; what was begun before has been reported.

        Args:
            folder: where to; is made.
            tensors: the state's; they may change as soon as this returns.
            extras: this rank's small things; they do not change any more. Rank 0 writes those of all ranks, if it
                writes everything.
        """
        part = self.prepare(tensors)
        if isinstance(part, Buffer):
            part.copy(tensors)
            data: Iterable[memoryview] = [part.data]
        else:
            data = self._told(part.parts(tensors))
        contents = partial(_dumped, extras)
        if self.main_only:
            contents = partial(_merged, self._world.gather(contents(), dict[str, bytes]))
        self._report = self._background.submit(self._write, folder, data, part.layout, contents)
        if isinstance(part, Window):
            wait(self._world, lambda: self.ended)

    def reports(self) -> list[Report]:
        """Wait for all ranks; what they have written, by rank, on rank 0."""
        wait(self._world, lambda: self.ended)
        mine = self._report.result() if self._report else None
        self._report = None
        return self._world.gather(mine, Report)

    def _write(
        self, folder: Path, data: Iterable[memoryview], planned: Layout, contents: Callable[[], Mapping[str, bytes]]
    ) -> Report:
        if self.main_only and not self._world.is_main:
            return None
        try:
            folder.mkdir(exist_ok=True)
            return shards.write(folder / shards.name(self._world.rank), data, planned.pieces, contents())
        except OSError as error:
            return error

    def _told(self, parts: Iterable[memoryview]) -> Iterator[memoryview]:
        """While training waits, each part is a sign of life."""
        for part in parts:
            yield part
            self._world.heartbeat.beat(Phase.SAVING)


def _dumped(extras: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: dump(value) for name, value in extras.items()}


def _merged(told: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    return {name: content for one in told for name, content in one.items()}
