"""Restores the state from in-memory copies, on whichever nodes their shards are. Collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import Tail
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.restore_order import MemoryShard, RestorePoint, complete_copies
from kittrain.rank.snapshots.state.state_reader import FAILURES, UNUSABLE, Extras, StateReader
from kittrain.rank.world.distributed import World
from kittrain.system.storage import retry_io

T = TypeVar("T")


class MemoryRestore:
    """The in-memory copies on all nodes.

    Args:
        world: all ranks.
        folder: of this rank's node; None if it has no copies.

    Attributes:
        copies: the complete ones, the newest first; only rank 0 knows.
    """

    def __init__(self, world: World, folder: Path | None) -> None:
        self._world = world
        self._folder = folder
        held = list(_scan(folder)) if folder else []
        self._paths = {(one.manifest.name, one.number): path for one, path in held}
        self.copies = complete_copies(world.gather([one for one, _ in held], list[MemoryShard]))

    def read(self, reader: StateReader, point: RestorePoint) -> Extras:
        """Set the state to a copy. Errors are raised on all ranks alike.

        Raises:
            CorruptError: the copy is damaged.
            IncompatibleError: it is of another optimizer.
            StorageUnavailableError: it cannot be read.
        """
        opened = self._world.attempt(lambda: self._open(point), *FAILURES)
        gathered = self._world.gather({number: shard.tail for number, shard in opened.items()}, dict[int, Tail])
        tails: dict[int, Tail] = {}
        for held in self._world.broadcast_value(gathered, list[dict[int, Tail]]):
            tails |= held
        return reader.read(
            [tails[number] for number in range(len(point.holders))],
            lambda number, start, stop: self._retry(lambda: opened[number].read(start, stop)),
            holders=point.holders,
        )

    def _open(self, point: RestorePoint) -> dict[int, ShardFile]:
        """The shards that this rank reads for all ranks, by number."""
        mine = {
            number: (self._paths[point.manifest.name, number], shard)
            for number, (holder, shard) in enumerate(zip(point.holders, point.manifest.shards, strict=True))
            if holder == self._world.rank
        }
        return self._retry(lambda: {number: ShardFile(*one) for number, one in mine.items()})

    def _retry(self, act: Callable[[], T]) -> T:
        return retry_io(act, self._folder or Path(), self._world.warn)


def _scan(folder: Path) -> Iterator[tuple[MemoryShard, Path]]:
    """The shards of copies on this node, of all its ranks; damaged copies are ignored."""
    for copy in folder.glob("*/step-*"):
        with suppress(*UNUSABLE):
            manifest = snapshot.read_manifest(copy)
            for path in copy.glob("shard-*.bin"):
                yield MemoryShard(manifest=manifest, number=int(path.stem.removeprefix("shard-"))), path
