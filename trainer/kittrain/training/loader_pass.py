"""One pass over a loader of any kind, whose position can be saved and resumed.

| Loader | How a pass is resumed |
|---|---|
| has ``state_dict`` and ``load_state_dict`` | by them |
| torch's DataLoader, map-style data set | its sampler's indices before the position are dropped |
| torch's DataLoader without workers, iterable data set with ``state_dict`` | by the data set's state |
| anything else | the batches before the position are read again and dropped |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from kittrain.snapshots.state import frozen, has_state
from kittrain.training.loader_position import PositionedLoader, generators, is_map_style, samplers
from kittrain.world import rng

Position = dict[str, Any]  # of a pass; plain values and tensors


class LoaderPass:
    """The batches of one pass. Not collective.

    Args:
        loader: of this rank's batches.
        positioned: of that loader, if it is a map-style DataLoader.
        epoch: number of the pass, from 0 on.
        rank: this one.
        sampler_epochs: the epoch that each sampler was last set to, by its id; is updated.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        positioned: PositionedLoader | None,
        *,
        epoch: int,
        rank: int,
        sampler_epochs: dict[int, int],
    ) -> None:
        self._loader = loader
        self._positioned = positioned
        self._epoch = epoch
        self._rank = rank
        self._sampler_epochs = sampler_epochs
        self._stateful = stateful_part(loader)
        self._taken = 0
        self._start: Position = {}

    @property
    def taken(self) -> int:
        """Batches taken so far, including those before a restart."""
        return self._taken

    @property
    def length(self) -> int | None:
        """All batches of the pass, if the loader knows."""
        try:
            return len(self._loader)  # type: ignore[arg-type]
        except TypeError:
            return None

    def position(self) -> Position:
        """The position after the last batch that was taken.

        Raises:
            StateError: the loader's state could not be restored.
        """
        state = {"state": frozen(self._stateful.state_dict())} if self._stateful is not None else {}
        return {**self._start, "epoch": self._epoch, "taken": self._taken, **state}

    def begin(self) -> Iterator[Any]:
        """All batches."""
        self._set_epoch()
        self._start = {
            "rng": rng.capture(),
            "generators": [one.get_state() for one in generators(self._loader)],
            "samplers": [one.state_dict() for one in samplers(self._loader) if has_state(one)],
        }
        return self._counted(self._iterate(0))

    def resume(self, saved: Position, *, taken: int) -> Iterator[Any]:
        """The batches after a position. It leaves the global generators in an undefined state.

        Args:
            saved: the position.
            taken: batches before it, on this rank; another number than saved if there are other ranks.
        """
        self._set_epoch()
        self._start = {key: saved[key] for key in ("rng", "generators", "samplers")}
        rng.restore(saved["rng"])
        self._taken = taken
        if self._stateful is not None and "state" in saved:
            self._stateful.load_state_dict(saved["state"])
            return self._counted(iter(self._loader))
        for generator, state in zip(generators(self._loader), saved["generators"], strict=False):
            generator.set_state(state)
        stateful = [one for one in samplers(self._loader) if has_state(one)]
        for sampler, state in zip(stateful, saved["samplers"], strict=False):
            sampler.load_state_dict(state)
        return self._counted(self._iterate(taken))

    def _iterate(self, skip: int) -> Iterator[Any]:
        if self._positioned and (skip or self._loader.num_workers):  # type: ignore[attr-defined]  # a DataLoader
            return self._positioned.start(skip, self._start["rng"], rank=self._rank)
        batches = iter(self._loader)
        for _ in islice(batches, skip):
            pass
        return batches

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._taken += 1
            yield batch

    def _set_epoch(self) -> None:
        """Set the samplers' epoch, as torch's DistributedSampler needs, unless the script does it."""
        for one in (*samplers(self._loader), getattr(self._loader, "dataset", None)):
            if callable(getattr(one, "set_epoch", None)):
                if getattr(one, "epoch", None) in {None, self._sampler_epochs.get(id(one), 0)}:
                    one.set_epoch(self._epoch)
                self._sampler_epochs[id(one)] = self._epoch


def stateful_part(loader: Any) -> Any:
    """The loader, or its data set, if that has the position in its state; else None."""
    if has_state(loader):
        return loader
    dataset = getattr(loader, "dataset", None)
    in_this_process = isinstance(loader, DataLoader) and not is_map_style(loader) and not loader.num_workers
    return dataset if in_this_process and has_state(dataset) else None


def is_exact(loader: object) -> bool:
    """Whether a pass can be resumed without reading what comes before the position."""
    return stateful_part(loader) is not None or is_map_style(loader)
