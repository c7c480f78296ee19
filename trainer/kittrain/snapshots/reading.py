"""Setting the trained state to a saved one, block by block, whoever can read its shards. Collective.

Beside the state itself no rank ever holds more than a block of it, in main memory or on its device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from kittrain.snapshots import loading, tree
from kittrain.snapshots.loading import Filling
from kittrain.snapshots.shards import CorruptError, Tail
from kittrain.snapshots.snapshot import REST, ForeignError
from kittrain.snapshots.state import State
from kittrain.system.storage import StorageUnavailableError
from kittrain.world.distributed import World

Extras = dict[str, bytes]
Read = Callable[[int, int, int], bytearray]  # of a shard, by its number: verified bytes from one to another
UNUSABLE: Final = (CorruptError, ForeignError)  # proved to be
FAILURES: Final = (*UNUSABLE, StorageUnavailableError)


class Reader:
    """Reads into one state, from one place after the other until all of it could be read.

    Args:
        world: all ranks.
        state: to be set.

    Attributes:
        alike: whether all ranks hold the state alike, so that one of them can read it for all.
        half_read: whether the state is neither what it was nor a saved one, since a shard proved bad half-way. Nobody
            may train on it.
    """

    def __init__(self, world: World, state: State) -> None:
        self._world = world
        self._state = state
        self.alike = not state.sharded
        self.half_read = False

    def read(self, tails: Sequence[Tail], read: Read, holders: Sequence[int] = ()) -> Extras:
        """Set the state; what is wrong with the saved one is raised on all ranks alike.

        Args:
            tails: of all shards, by number.
            read: reads this rank's file system.
            holders: the rank that reads each shard for all ranks; none where each reads what it needs itself.

        Returns:
            The small things beside the tensors, of all shards.

        Raises:
            CorruptError: it is damaged.
            ForeignError: it is of another model or optimizer.
            StorageUnavailableError: it cannot be read.
        """
        extras = {name: value for tail in tails for name, value in tail.extras.items()}
        pieces = [tail.pieces for tail in tails]
        rest = tree.load(extras[REST])
        targets = self._world.attempt(lambda: self._state.targets(loading.structure(pieces), rest), *UNUSABLE)
        filling = self._world.attempt(lambda: Filling(targets, pieces), *UNUSABLE)
        self.half_read = True
        if holders:
            relay = Relay(self._world)
            for number, block in loading.each(pieces):
                content = relay.send(block.size, lambda: read(number, block.start, block.stop), source=holders[number])  # noqa: B023  called at once
                filling.put(number, block, content)
        else:
            self._world.attempt(lambda: filling.fill(read), *FAILURES)
        self._state.adopt(targets, rest)
        self.half_read = False
        return extras


class Relay:
    """Hands bytes from the rank that reads them to all ranks, through one small buffer. Collective."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def send(self, size: int, read: Callable[[], bytearray], *, source: int) -> Tensor:
        """What a rank reads, (size,) bytes, on every rank until the next time.

        Args:
            size: equal on all ranks.
            read: is called on the source alone.
            source: a rank.

        Raises:
            CorruptError, ForeignError, StorageUnavailableError: what reading raised there, on all ranks alike.
        """
        if self._world.size == 1:
            return torch.frombuffer(read(), dtype=torch.uint8)
        if self._buffer.numel() <= size:
            self._buffer = torch.empty(size + 1, dtype=torch.uint8, device=self._world.device)
        sent, problem = self._buffer[: size + 1], None  # the last byte tells whether the others are good
        if self._world.rank == source:
            try:
                sent[:size].copy_(torch.frombuffer(read(), dtype=torch.uint8))
            except FAILURES as error:
                problem = error
            sent[size] = problem is None
        self._world.broadcast(sent, source=source)
        if not sent[size]:
            self._world.attempt(lambda: _raise(problem), *FAILURES)
        return sent[:size]


def _raise(problem: Exception | None) -> None:
    if problem:
        raise problem
