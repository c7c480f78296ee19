"""Going on from copies in main memory, wherever in the world their shards are held. Collective."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from trainer.snapshots import loading, snapshot
from trainer.snapshots.branch import Held, Offer, whole
from trainer.snapshots.loading import Filling, Read
from trainer.snapshots.shards import CorruptError, Piece, ShardFile
from trainer.snapshots.snapshot import ForeignError
from trainer.snapshots.state import State, Tensors
from trainer.world.distributed import World

Extras = dict[str, bytes]
Contents = tuple[Tensors, Extras]
Tail = tuple[tuple[Piece, ...], Extras]  # what a shard says about its data, and what it holds beside them
UNUSABLE: Final = (CorruptError, ForeignError, OSError)


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
        held = list(_look(folder)) if folder else []
        self._paths = {(one.manifest.name, one.number): path for one, path in held}
        self.copies = whole(world.gather([one for one, _ in held]))

    def read(self, state: State, offer: Offer) -> Contents:
        """What this rank needs of a copy. What is wrong with it is raised on all ranks alike.

        Raises:
            CorruptError: it is damaged.
            ForeignError: it is of another optimizer.
            OSError: it cannot be read.
        """
        tails, data = self._world.attempt(lambda: self._verified(offer), *UNUSABLE)
        all_tails: dict[int, Tail] = {}
        for known in self._world.share(self._world.gather(tails)):
            all_tails |= known
        pieces = [all_tails[number][0] for number in range(len(offer.holders))]
        tensors = state.like() if state.sharded else loading.whole(pieces)
        filling = self._world.attempt(lambda: Filling(tensors, pieces), *UNUSABLE)
        for number, holder in enumerate(offer.holders):
            mine = {"data": data.pop(number)} if holder == self._world.rank else {}
            filling.take(number, _reader(self._world.share_tensors(mine, source=holder)["data"]))
        return tensors, {key: value for _, extras in all_tails.values() for key, value in extras.items()}

    def _verified(self, offer: Offer) -> tuple[dict[int, Tail], dict[int, Tensor]]:
        """The tails and the data of the shards that this rank reads for all, by number."""
        tails, data = {}, {}
        for number, (holder, told) in enumerate(zip(offer.holders, offer.manifest.shards, strict=True)):
            if holder == self._world.rank:
                with ShardFile(self._paths[offer.manifest.name, number], told) as shard:
                    tails[number] = tuple(shard.pieces), shard.extras
                    data[number] = _tensor(shard.read(0, told.data))
        return tails, data


def _look(folder: Path) -> Iterator[tuple[Held, Path]]:
    """The shards of copies on this node, of all its ranks; what is damaged is as if it were not there."""
    for copy in folder.glob("*/step-*"):
        with suppress(*UNUSABLE):
            manifest = snapshot.read_manifest(copy)
            for path in copy.glob("shard-*.bin"):
                yield Held(manifest=manifest, number=int(path.stem.removeprefix("shard-"))), path


def _tensor(data: bytearray) -> Tensor:
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _reader(data: Tensor) -> Read:
    content: memoryview = data.cpu().numpy().data
    return lambda start, stop: content[start:stop]
