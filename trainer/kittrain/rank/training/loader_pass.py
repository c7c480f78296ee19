"""One pass over a loader of any kind, whose position can be saved and resumed.

| Loader | How a pass is resumed |
|---|---|
| has ``state_dict`` and ``load_state_dict`` | by them |
| torch's DataLoader, map-style data set | its sampler's indices before the position are dropped |
| torch's DataLoader without workers, iterable data set with ``state_dict`` | by the data set's state |
| anything else | the batches before the position are read again and dropped |
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict
from itertools import islice
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader

from kittrain.rank.snapshots.state.state import StateError, frozen, has_state
from kittrain.rank.training.loader_position import PositionedLoader, generators, is_map_style, samplers, undrawn
from kittrain.rank.training.resumed_place import Position, Resize, Resumed, resumed_elsewhere, resumed_place
from kittrain.rank.training.taken_ahead import FirstSteps
from kittrain.rank.world import rng
from kittrain.torch_private.ranks import has_read_to_the_end

OnResize = Literal["exact", "share"]
_END = object()


class LoaderPass:
    """The batches of one pass. Not collective.

    Args:
        loader: of this rank's batches.
        positioned: of that loader, if it is a map-style DataLoader.
        epoch: number of the pass, from 0 on.
        rank: this one.
        sampler_epochs: the epoch that each sampler was last set to, by its id; is updated.
        ask: called before each batch is loaded.

    Attributes:
        taken: batches of this part of the pass, including those before a restart; a resize begins a new part.
        pending: batches that were taken since the last step.
        learning: whether some of these were taken with gradients enabled.
        thread: that took the last one.
        skipped: whether it was resumed within.
        trained: whether a step has taken its batches; else it is an evaluation, of which nothing is in the state.
        current: whether the last step has.
        ended: whether it gives no more batches: all were taken, or the loop has left it.
        exhausted: whether the loop has been told that there are no more.
        steps: the first of those that took batches of it since it was begun or resumed.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        positioned: PositionedLoader | None,
        *,
        epoch: int,
        rank: int,
        sampler_epochs: dict[int, int],
        ask: Callable[[LoaderPass], None],
    ) -> None:
        self._loader = loader
        self._positioned = positioned
        self._epoch = epoch
        self._rank = rank
        self._sampler_epochs = sampler_epochs
        self._ask = ask
        self._stateful = stateful_part(loader)
        self._start: Position = {}
        self._batches: Iterator[Any] = iter(())
        self._length: int | None = None
        self.taken = self.pending = self.thread = 0
        self.steps = FirstSteps()
        self.learning = self.skipped = False
        self.trained = self.current = self.ended = self.exhausted = False

    @property
    def length(self) -> int | None:
        """All batches of this part of the pass, if known."""
        return self._positioned.batches() if self._positioned else length_of(self._loader)

    @property
    def whole(self) -> int | None:
        """All batches of a whole pass, if known."""
        return length_of(self._loader)

    @property
    def complete(self) -> bool:
        """Whether all batches were taken, as far as is known."""
        return self.exhausted or self.taken == self._length

    @property
    def number(self) -> int:
        """The number of the next batch, from 0 on; in a part after a resize, counted from the end of the pass."""
        part, whole = self.length, self.whole
        return self.taken if part is None or whole is None else max(0, whole - part + self.taken)

    def end_step(self, passes: int) -> str | None:
        """A step has taken the batches, with so many backward passes; returns a note if it may have taken too many.

        Raises:
            TakenAheadError: the first step took batches of later ones.
        """
        note = self.steps.add(self.pending, passes)
        self.pending, self.learning = 0, False
        return note

    def is_over(self, loader: object) -> bool:
        """Whether it is a pass over this loader."""
        return self._loader is loader

    def position(self) -> Position:
        """The position after the last batch that was taken.

        Raises:
            StateError: the loader's state could not be restored.
        """
        found: Position = {**self._start, "epoch": self._epoch, "taken": self.taken, "complete": self.complete}
        found |= {"current": self.current, "batches": length_of(self._loader)}
        if self._stateful is not None:
            found["state"] = frozen(self._stateful.state_dict())
            found["wrapped"] = has_read_to_the_end(self._batches)  # the state is already that of the next pass
        if self._positioned:
            with suppress(StateError):  # only a sampler that draws each index from the global generators needs them
                found["ahead"] = frozen(self._positioned.ahead(self.taken))
            if place := self._positioned.place(self.taken):
                found["place"] = asdict(place)
        return found

    def begin(self, *, running: bool) -> Iterator[Any]:
        """All batches.

        Args:
            running: the loader's workers would be running, without an interruption.
        """
        self._set_epoch()
        self._start = {
            "rng": rng.capture(),
            "generators": [one.get_state() for one in generators(self._loader)],
            "samplers": [one.state_dict() for one in samplers(self._loader) if has_state(one)],
            "running": running,
        }
        return self._counted(self._iterate(Resumed(), running=running))

    def resume(self, saved: Position, resize: Resize) -> Iterator[Any]:
        """The batches after a position. It leaves the global generators in an undefined state.

        Args:
            saved: the position.
            resize: of the ranks since.

        Raises:
            PositionError: it is not known what is left, as the number of ranks has changed.
        """
        self._set_epoch()
        self._start = {key: saved[key] for key in ("rng", "generators", "samplers")}
        self._start["running"] = running = saved.get("running", False)
        self.trained, self.current = True, saved.get("current", False)
        resumed = self._resumed(saved, resize)
        self.taken = resumed.skip
        self.skipped = not saved.get("complete", False)
        if resumed.nothing_left:
            self.exhausted = True
            return iter(())
        rng.restore(saved["rng"])
        if self._stateful is not None and "state" in saved:
            self._stateful.load_state_dict(saved["state"])
            return self._counted(iter(()) if saved.get("wrapped") else iter(self._loader))
        if running and self._positioned:
            self._positioned.run()
        for generator, state in zip(generators(self._loader), saved["generators"], strict=False):
            generator.set_state(state)
        stateful = [one for one in samplers(self._loader) if has_state(one)]
        for sampler, state in zip(stateful, saved["samplers"], strict=False):
            sampler.load_state_dict(state)
        return self._counted(self._iterate(resumed, running=running))

    def _resumed(self, saved: Position, resize: Resize) -> Resumed:
        """Where the pass continues."""
        now = self._positioned.place(0) if self._positioned and "place" in saved else None
        if now and self._positioned:
            return resumed_place(saved, now, self._positioned.sampler, resize)
        return resumed_elsewhere(saved, type(self._loader).__name__, length_of(self._loader), resize)

    def _iterate(self, at: Resumed, *, running: bool) -> Iterator[Any]:
        if self._positioned and (at.skip or at.after or self._loader.num_workers):  # type: ignore[attr-defined]
            return self._positioned.start(at.skip, self._start["rng"], rank=self._rank, after=at.after, ahead=at.ahead)
        if self._positioned:
            self._positioned.rewind()
        with undrawn(self._loader) if running else nullcontext():
            batches = iter(self._loader)
        for _ in islice(batches, at.skip):
            pass
        return batches

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        self._batches = batches
        self._length = self.length  # not asked for each batch: samplers count
        return self._count()

    def _count(self) -> Iterator[Any]:
        try:
            while True:
                self._ask(self)
                if (batch := next(self._batches, _END)) is _END:
                    self.exhausted = True
                    return
                self.taken += 1
                self.pending += 1
                self.learning = self.learning or torch.is_grad_enabled()
                self.thread = threading.get_ident()
                yield batch
        finally:
            self.ended = True

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


def length_of(loader: Any) -> int | None:
    """The number of batches in a whole pass, if the loader knows."""
    try:
        return len(loader)
    except TypeError:
        return None
