"""The position of a Lightning Trainer in its data: it counts batches, but restarts the data when it resumes.

A map-style DataLoader goes on at its position without loading what comes before; of any other loader the batches before
are read again and dropped, unless it has a state of its own, which the Trainer restores.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from kittrain.snapshots.state import has_state
from kittrain.training.loader_position import samplers
from kittrain.world import rng


class _Rest:
    """A sampler's indices after the first ``skip`` ones. Its other attributes are the sampler's."""

    def __init__(self, sampler: Any, skip: int) -> None:
        self.sampler = sampler
        self.skip = skip

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.skip, None)

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)


class Position:
    """The position within an epoch, with the random generators of this rank.

    Args:
        trainer: a ``lightning.Trainer``.

    Attributes:
        restored: the state to go on from; None: none.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._first = True  # epoch of this process: its iterator is made before the epoch's hooks are called
        self._start: dict[str, Any] = {}
        self._now: Any = None  # the generators once the batches before the position have been dropped
        self._shortened: BatchSampler | None = None
        self.restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The generators now, and at the start of the epoch."""
        return {"rng": rng.capture(), "start": self._start}

    def begin_epoch(self) -> None:
        """A new epoch begins."""
        self._start = {"rng": rng.capture(), "iterated": self._first}
        self._first = False

    def go(self) -> None:
        """Move to the restored position, if there is one."""
        state, self.restored = self.restored, None
        loop = self._trainer.fit_loop
        taken = loop.batch_idx + 1
        if state is None:
            return
        self._now = state["rng"]
        if taken <= 0 or not state["start"] or not loop.restarted_mid_epoch:
            return
        self._start, self._first = state["start"], False
        loaders = self._trainer.fit_loop._combined_loader.flattened  # noqa: SLF001  Lightning has no public name for it
        if all(has_state(one) for one in loaders):
            return
        skipped = self._skip(loaders, taken)
        if not self._start["iterated"]:
            rng.restore(self._start["rng"])
        fetcher = iter(loop._data_fetcher)  # noqa: SLF001  as above
        if self._start["iterated"]:
            rng.restore(self._start["rng"])
        for _ in range(0 if skipped else taken):
            next(fetcher)
        fetcher.fetched = 0

    def loaded(self) -> None:
        """The first batch after the position was loaded: undo the random draws made while skipping."""
        if self._now:
            rng.restore(self._now)
        self._now = None

    def end_epoch(self) -> None:
        """The next epoch has all of its batches."""
        if self._shortened is not None and isinstance(self._shortened.sampler, _Rest):
            self._shortened.sampler = self._shortened.sampler.sampler
        self._shortened = None

    def _skip(self, loaders: list[Any], batches: int) -> bool:
        """Make the loader start after this number of batches; False: it cannot."""
        for sampler in chain.from_iterable(samplers(one) for one in loaders):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(self._trainer.current_epoch)
        loader = loaders[0]
        if len(loaders) > 1 or not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
            return False
        if type(loader.batch_sampler) is not BatchSampler:
            return False
        self._shortened = loader.batch_sampler
        self._shortened.sampler = _Rest(self._shortened.sampler, batches * self._shortened.batch_size)
        return True


def rescale(checkpoint: dict[str, Any], ranks: int, now: int) -> None:
    """Change a checkpoint's count of batches in this epoch from one number of ranks to another."""
    counts = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
    behind = counts["ready"] - counts["completed"]
    ready = counts["ready"] * ranks // now
    counts |= {"ready": ready, "started": ready, "processed": ready, "completed": ready - behind}
