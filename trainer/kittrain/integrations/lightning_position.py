"""The position of a Lightning Trainer in its data: it counts batches, but restarts the data when it resumes.

A map-style DataLoader continues at its position without loading what comes before; of any other loader the batches
before are read again and dropped, unless it has a state of its own, which the Trainer restores.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from kittrain.rank.snapshots.state.state import has_state
from kittrain.rank.training.loader_position import samplers
from kittrain.rank.world import rng
from kittrain.rank.world.rng import RngState


class _Rest:
    """A sampler's indices after the first ``skip`` ones. Its other attributes are the sampler's.

    Args:
        sampler: of all indices.
        skip: how many to drop.
        start: the random generators, as they were when the sampler began.
        now: the same, as they were when the next index was to be taken.
    """

    def __init__(self, sampler: Any, skip: int, start: RngState, now: RngState) -> None:
        self.sampler = sampler
        self.skip = skip
        self._start = start
        self._now = now

    def __iter__(self) -> Iterator[Any]:
        rng.restore(self._start)
        indices = iter(self.sampler)
        for _ in islice(indices, self.skip):
            pass
        rng.restore(self._now)
        yield from indices

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)


class Position:
    """The position within an epoch, with the random generators of this rank.

    Args:
        trainer: a ``lightning.Trainer``.

    Attributes:
        restored: the state to continue from; None: none.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._first = True  # epoch of this process: its iterator is made before the epoch's hooks are called
        self._start: dict[str, Any] = {}
        self._marked: dict[str, Any] | None = None
        self._now: Any = None  # the generators once the batches before the position have been dropped
        self._epoch: Any = None  # the generators where the next epoch begins
        self._resumed = False
        self._shortened: BatchSampler | None = None
        self.restored: dict[str, Any] | None = None

    def mark(self, *, boundary: bool = False) -> None:
        """The next checkpoint's position is here, before a batch is loaded, or between two epochs."""
        self._marked = {"rng": rng.capture(), "start": self._start, "boundary": boundary}

    def state_dict(self) -> dict[str, Any]:
        """The generators where the position is, and at the start of the epoch."""
        return self._marked or {"rng": rng.capture(), "start": self._start, "boundary": False}

    def begin_epoch(self) -> None:
        """A new epoch begins."""
        self._start = {"rng": rng.capture(), "iterated": self._first}
        self._first = False

    def restore_epoch(self) -> None:
        """The epoch that training continues with begins: restore the generators."""
        if self._epoch:
            rng.restore(self._epoch)
        self._epoch = None

    def go(self) -> None:
        """Move to the restored position, if there is one."""
        state, self.restored = self.restored, None
        loop = self._trainer.fit_loop
        taken = loop.batch_idx + 1
        if state is None:
            return
        self._resumed = True
        if state.get("boundary"):
            self._first = False
            self._epoch = state["rng"]
            loop.epoch_loop.restarting = False  # it begins an epoch
            loop._resuming_from_checkpoint = False  # noqa: SLF001  else it begins with an iterator from before
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
        if self._start["iterated"] and not skipped:  # else the sampler does it, with workers already
            rng.restore(self._start["rng"])
        for _ in range(0 if skipped else taken):
            next(fetcher)
        fetcher.fetched = 0
        if skipped and not loaders[0].num_workers:
            self._now = None  # the sampler restores it, and what loading draws counts
        elif not skipped and fetcher.length is not None:  # the next batch has not been loaded yet
            rng.restore(self._now)
            self._now = None

    def loaded(self) -> None:
        """The first batch after the position was loaded: undo the random draws made while skipping."""
        if self._now:
            rng.restore(self._now)
        self._now = self._marked = None
        if self._resumed:
            self._trainer.fit_loop._restarting = False  # noqa: SLF001  else schedulers miss the end of this epoch
            self._resumed = False

    def end_epoch(self) -> None:
        """The next epoch has all of its batches."""
        if self._shortened is not None and isinstance(self._shortened.sampler, _Rest):
            self._shortened.sampler = self._shortened.sampler.sampler
        self._shortened = None

    def end(self) -> None:
        """Training had ended at the restored position: what comes next may draw random numbers."""
        state, self.restored = self.restored, None
        if state:
            rng.restore(state["rng"])

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
        skip = batches * self._shortened.batch_size
        self._shortened.sampler = _Rest(self._shortened.sampler, skip, self._start["rng"], self._now)
        return True


def rescale(checkpoint: dict[str, Any], ranks: int, now: int) -> None:
    """Change a checkpoint's count of batches in this epoch from one number of ranks to another."""
    counts = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
    behind = counts["ready"] - counts["completed"]
    ready = counts["ready"] * ranks // now
    counts |= {"ready": ready, "started": ready, "processed": ready, "completed": ready - behind}


def before_batch(checkpoint: dict[str, Any]) -> None:
    """Change a checkpoint that is written where a batch begins into one of the end of the batch before.

    It is one that Lightning resumes with the next batch; after the whole of a batch it would repeat its validation.
    """
    loop = checkpoint["loops"]["fit_loop"]
    progress = loop["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        counts["ready"] -= 1
        counts["completed"] -= 1
    progress["is_last_batch"] = False
    state = loop["epoch_loop.state_dict"]
    if "_batches_that_stepped" in state:
        state["_batches_that_stepped"] -= 1


def before_epoch(checkpoint: dict[str, Any]) -> None:
    """Change a checkpoint that is written where an epoch begins into one of the end of the epoch before."""
    progress = checkpoint["loops"]["fit_loop"]["epoch_progress"]
    for counts in (progress["total"], progress["current"]):
        counts["ready"] -= 1
