"""One rank's part of each snapshot: copied at once, written in the background, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from trainer import layout, shards
from trainer.distributed import World
from trainer.layout import Layout
from trainer.shards import Shard
from trainer.state import Tensors

Report = Shard | OSError | None  # what a rank wrote, or why it could not; nothing where rank 0 writes for all


class Writer:
    """Collective: all ranks make one and call the same methods.

    Attributes:
        main_only: whether rank 0 writes everything.
    """

    def __init__(self, world: World, *, main_only: bool) -> None:
        self._world = world
        self.main_only = main_only
        self._pool = ThreadPoolExecutor(1, "snapshot")
        self._layout: Layout | None = None
        self._report: Future[Report] | None = None

    @property
    def ended(self) -> bool:
        """Whether this rank has nothing left to write."""
        return self._report is None or self._report.done()

    def begin(self, folder: Path, tensors: Tensors, extras: Mapping[str, bytes]) -> None:
        """Copy this rank's part of the state and begin to write it; what was begun before has been told by now.

        Args:
            folder: where to; is made.
            tensors: the state's; they may change as soon as this returns.
            extras: this rank's small things.
        """
        if self._layout is None or self._layout.structure != layout.structure(tensors):
            self._layout = layout.plan(self._world, tensors, main_only=self.main_only)
        self._layout.copy(tensors)
        self._report = self._pool.submit(self._write, folder, self._layout, extras)

    def reports(self) -> list[Report]:
        """Wait for all ranks; what they have written, by rank, on rank 0."""
        mine = self._report.result() if self._report else None
        self._report = None
        return self._world.gather(mine)

    def close(self) -> None:
        """Wait for this rank, and begin no more."""
        self._pool.shutdown()

    def _write(self, folder: Path, part: Layout, extras: Mapping[str, bytes]) -> Report:
        if self.main_only and not self._world.is_main:
            return None
        try:
            folder.mkdir(exist_ok=True)
            return shards.write(folder / shards.name(self._world.rank), part.data, part.pieces, extras)
        except OSError as error:
            return error
