"""Going on from copies in main memory, wherever in the world their shards are held. Collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from kittrain.snapshots import snapshot
from kittrain.snapshots.branch import Held, Offer, whole
from kittrain.snapshots.reading import FAILURES, UNUSABLE, Extras, Reader
from kittrain.snapshots.shardfile import ShardFile
from kittrain.snapshots.shards import Tail
from kittrain.system.storage import retry_io
from kittrain.world.distributed import World

T = TypeVar("T")


class Recall:
    """What the nodes hold.

    Args:
        world: all ranks.
        folder: of this rank's node; None where it keeps nothing.

    Attributes:
        copies: that are whole, the newest first; rank 0 knows.
    """

    def __init__(self, world: World, folder: Path | None) -> None:
        self._world = world
        self._folder = folder
        held = list(_look(folder)) if folder else []
        self._paths = {(one.manifest.name, one.number): path for one, path in held}
        self.copies = whole(world.gather([one for one, _ in held], list[Held]))

    def read(self, reader: Reader, offer: Offer) -> Extras:
        """Set the state to a copy. What is wrong with it is raised on all ranks alike.

        Raises:
            CorruptError: it is damaged.
            ForeignError: it is of another optimizer.
            StorageUnavailableError: it cannot be read.
        """
        opened = self._world.attempt(lambda: self._opened(offer), *FAILURES)
        mine = self._world.gather({number: shard.tail for number, shard in opened.items()}, dict[int, Tail])
        tails: dict[int, Tail] = {}
        for known in self._world.broadcast_value(mine, list[dict[int, Tail]]):
            tails |= known
        return reader.read(
            [tails[number] for number in range(len(offer.holders))],
            lambda number, start, stop: self._patiently(lambda: opened[number].read(start, stop)),
            holders=offer.holders,
        )

    def _opened(self, offer: Offer) -> dict[int, ShardFile]:
        """The shards that this rank reads for all, by number."""
        mine = {
            number: (self._paths[offer.manifest.name, number], told)
            for number, (holder, told) in enumerate(zip(offer.holders, offer.manifest.shards, strict=True))
            if holder == self._world.rank
        }
        return self._patiently(lambda: {number: ShardFile(*one) for number, one in mine.items()})

    def _patiently(self, act: Callable[[], T]) -> T:
        return retry_io(act, self._folder or Path(), self._world.warn)


def _look(folder: Path) -> Iterator[tuple[Held, Path]]:
    """The shards of copies on this node, of all its ranks; what is damaged is as if it were not there."""
    for copy in folder.glob("*/step-*"):
        with suppress(*UNUSABLE):
            manifest = snapshot.read_manifest(copy)
            for path in copy.glob("shard-*.bin"):
                yield Held(manifest=manifest, number=int(path.stem.removeprefix("shard-"))), path
