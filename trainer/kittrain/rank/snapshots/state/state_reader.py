"""Sets the training state to a saved one, block by block, from shards that any rank can read. Collective.

Besides the state itself no rank ever holds more than one block, in main memory or on its device.

Why: decision 23.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from kittrain.rank.snapshots.files import tree
from kittrain.rank.snapshots.files.shards import CorruptError, Tail
from kittrain.rank.snapshots.folder.snapshot import REST, IncompatibleError
from kittrain.rank.snapshots.state import tensor_reader
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.state.tensor_reader import TensorFiller
from kittrain.rank.world.distributed import World
from kittrain.system.storage import StorageUnavailableError

Extras = dict[str, bytes]
Read = Callable[[int, int, int], bytearray]  # (shard number, start, stop) to verified bytes
UNUSABLE: Final = (CorruptError, IncompatibleError)  # errors that prove a snapshot unusable
FAILURES: Final = (*UNUSABLE, StorageUnavailableError)


class StateReader:
    """Reads saved states into one state, until one of them could be read completely.

    Args:
        world: all ranks.
        state: to be set.

    Attributes:
        replicated: whether all ranks hold the same state, so that one of them can read it for all.
        partially_read: whether the state is neither the old nor a saved one, since a shard was damaged. It must not be
            trained on.
    """

    def __init__(self, world: World, state: State) -> None:
        self._world = world
        self._state = state
        self.replicated = not state.sharded
        self.partially_read = False

    def read(self, tails: Sequence[Tail], read: Read, holders: Sequence[int] = ()) -> Extras:
        """Set the state; errors are raised on all ranks alike.

        Args:
            tails: of all shards, by number.
            read: reads from this rank's file system.
            holders: the rank that reads each shard for all ranks; empty if each rank reads what it needs.

        Returns:
            The extras of all shards.

        Raises:
            CorruptError: the saved state is damaged.
            IncompatibleError: it is of another model or optimizer.
            StorageUnavailableError: it cannot be read.
        """
        extras = {name: value for tail in tails for name, value in tail.extras.items()}
        pieces = [tail.pieces for tail in tails]
        rest = tree.load(extras[REST])
        targets = self._world.attempt(lambda: self._state.targets(tensor_reader.structure(pieces), rest), *UNUSABLE)
        filler = self._world.attempt(lambda: TensorFiller(targets, pieces), *UNUSABLE)
        self.partially_read = True
        if holders:
            broadcaster = Broadcaster(self._world)
            for number, block in tensor_reader.all_blocks(pieces):
                content = broadcaster.broadcast(
                    block.size,
                    lambda: read(number, block.start, block.stop),  # noqa: B023  called at once
                    source=holders[number],
                )
                filler.put(number, block, content)
        else:
            self._world.attempt(lambda: filler.fill(read), *FAILURES)
        self._state.apply(targets, rest)
        self.partially_read = False
        return extras


class Broadcaster:
    """Broadcasts bytes that one rank reads to all ranks, through one small buffer. Collective."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def broadcast(self, size: int, read: Callable[[], bytearray], *, source: int) -> Tensor:
        """The bytes that the source reads, (size,), on every rank; valid until the next call.

        Args:
            size: equal on all ranks.
            read: is called only on the source.
            source: a rank.

        Raises:
            CorruptError, IncompatibleError, StorageUnavailableError: reading failed; raised on all ranks alike.
        """
        if self._world.size == 1:
            return torch.frombuffer(read(), dtype=torch.uint8)
        if self._buffer.numel() <= size:
            self._buffer = torch.empty(size + 1, dtype=torch.uint8, device=self._world.device)
        sent, problem = self._buffer[: size + 1], None  # the last byte says whether the read succeeded
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
