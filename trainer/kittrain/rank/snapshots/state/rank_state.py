"""What each rank saves besides its part of the state: random generators, its DDP modules, where its loop is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kittrain.rank.snapshots.files.tree import load
from kittrain.rank.world import rng
from kittrain.rank.world.replica_state import ReplicaState
from kittrain.rank.world.rng import RngState
from kittrain.rank.world.seeds import derive_seed


class RankState:
    """Saves and restores what belongs to one rank.

    Args:
        rank: this one.
        position: returns where this rank's loop is, as plain values and tensors that no longer change; None: the data
            cursor says it all.
        replicas: what this rank's DDP modules keep; None: there are none.
        separate_streams: whether ranks that start without a saved state get separate random number streams; else the
            generators stay as the script has set them.

    Attributes:
        restored: a saved position: this rank's, or rank 0's if there were fewer ranks; None if there is none.
        ranks: how many ranks saved it.
        others: the positions of all of them by rank, if there is another number of ranks now.
        generators: the state that the generators were restored to; None if they were not.
    """

    def __init__(
        self,
        rank: int,
        position: Callable[[], Any] | None = None,
        *,
        replicas: ReplicaState | None = None,
        separate_streams: bool = True,
    ) -> None:
        self._rank = rank
        self._position = position
        self._replicas = replicas
        self._separate_streams = separate_streams
        self.restored: Any = None
        self.ranks = 0
        self.others: list[Any] = []
        self.generators: RngState | None = None
        self._outlived: int | None = None  # what the generators were seeded with, as this process goes on

    def capture(self) -> dict[str, Any]:
        """Values by name, which name the rank as well. Collective."""
        values: dict[str, Any] = {f"rng/{self._rank}": rng.capture()}
        if self._replicas and (replicas := self._replicas.capture()):
            values[f"replicas/{self._rank}"] = replicas
        return values | ({f"position/{self._rank}": self._position()} if self._position else {})

    def begin(self, seed: int) -> None:
        """Training starts without a saved state; ``seed`` is that of the data's order."""
        if self._separate_streams:
            rng.seed_all(derive_seed("rank", seed, 0, self._rank))

    def outlive(self, seed: int, step: int, *, alike: bool = False) -> None:
        """Training goes on after a step in other ranks.

        Args:
            seed: that of the data's order.
            step: that was the last one.
            alike: the script had seeded all ranks alike: what it draws to decide the same on all of them stays so.
        """
        rank = 0 if alike and not self._separate_streams else self._rank
        rng.seed_all(derive_seed("rank", seed, step, rank))
        self._outlived = torch.initial_seed()

    def go_on_seeded(self, step: int) -> None:
        """If the script has seeded the generators since ``outlive``: draw other numbers than after its beginning."""
        if self._outlived is not None and (seed := torch.initial_seed()) != self._outlived:
            rng.seed_all(derive_seed("seeded", seed, step))
        self._outlived = None

    def restore(self, saved: Mapping[str, bytes], *, ranks: int, same: bool, seed: int) -> None:
        """Training resumes.

        Args:
            saved: the verified values of all ranks.
            ranks: that saved them in the same order of the data; 0: it is another order, in which no position is valid.
            same: each rank continues as the same rank, with its generators; else they are seeded.
            seed: for that.
        """
        if same:
            self.generators = load(saved[f"rng/{self._rank}"])
            rng.restore(self.generators)
            if self._replicas and (replicas := saved.get(f"replicas/{self._rank}")):
                self._replicas.restore(load(replicas))
        else:
            rng.seed_all(seed)
        position = saved.get(f"position/{self._rank}", saved.get("position/0"))
        if position and ranks:
            self.restored, self.ranks = load(position), ranks
            if not same:
                self.others = [load(saved[f"position/{rank}"]) for rank in range(ranks) if f"position/{rank}" in saved]
