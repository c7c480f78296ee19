"""The samples that a loop has taken from ``Data`` since its last step, and the data cursor after it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kittrain.rank.training.taken_ahead import FirstSteps, TakenAheadError
from kittrain.rank.world.data import Batch, Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import STEPS, Cursor

ENDLESS: Final = sys.maxsize  # epochs


class Taken:
    """Counts samples of ``Data``; without it, steps.

    Args:
        data: of the run; None: its order is not known.
        world: all ranks.
        ask: called before a batch is loaded.
        begin: called when a loop begins to take batches, with whether nothing was taken since the last step.

    Attributes:
        order: that the cursor refers to.
        cursor: after the last batch that was taken.
        awaited: whether the loop is going to ask for another batch.
    """

    def __init__(
        self,
        data: Data | None,
        world: World,
        ask: Callable[[], None] = lambda: None,
        begin: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._data = data
        self._world = world
        self._ask = ask
        self._begin = begin
        self._first_steps = FirstSteps()
        self._thread = 0
        self._exhausted = False
        self.awaited = False
        self._batches: list[Batch] = []
        self.order = data.order if data else STEPS
        self.cursor = Cursor()

    @property
    def known(self) -> bool:
        """Whether the order of the data is known."""
        return self._data is not None

    def batches(self, data: Data, epoch: int | None) -> Iterator[Batch]:
        """The batches up to the end of an epoch; None: of all epochs.

        Raises:
            ValueError: the run was not given these data.
        """
        if data is not self._data:
            raise ValueError("pass the Data to Run, too, as data=: its order is needed before anything is restored")
        batches = data.batches(self.cursor, ENDLESS if epoch is None else epoch + 1, self._world)
        self.awaited = True
        self._begin(not self._batches)
        self._first_steps, self._exhausted = FirstSteps(), False
        try:
            while True:
                self._ask()
                if (batch := next(batches, None)) is None:
                    self._exhausted = True
                    return
                self._thread = threading.get_ident()
                self.cursor = data.order.after(batch.span)
                self._batches.append(batch)
                yield batch
        finally:
            self.awaited = False

    @property
    def taken(self) -> Sequence[Batch]:
        """The batches since the last step."""
        return self._batches

    @property
    def pending(self) -> bool:
        """Whether batches were taken since the last step."""
        return bool(self._batches)

    def number_of(self, batch: Batch) -> int:
        """The number of a batch in its epoch, from 0 on."""
        return batch.span.start // self.order.batch

    @property
    def decided(self) -> bool:
        """Whether it is known that batches are not taken ahead of their steps, as far as that can be known."""
        return self._first_steps.decided or self._exhausted or not self._first_steps.first

    def end_step(self, backward: int = 0) -> tuple[list[int], int]:
        """This rank's sample ids in the step that ends, and the number of samples of all ranks; 0 if unknown.

        Args:
            backward: backward passes since the last step; 0: unknown.

        Raises:
            TakenAheadError: the loop takes its batches before the step that precedes them.
        """
        if not self._data:
            self.cursor = Cursor(0, self.cursor.position + 1)
        batches, self._batches = self._batches, []
        if batches:
            if self._thread != threading.get_ident():
                raise TakenAheadError("in another thread")
            if note := self._first_steps.add(len(batches), backward):
                self._world.print(note)
        elif self._exhausted and self._first_steps.late:
            raise TakenAheadError("before the steps that precede them: this one took none")
        return [sample for batch in batches for sample in batch.ids], sum(batch.span.size for batch in batches)

    def end_epoch(self, epoch: int) -> None:
        """Check that the epoch has ended.

        Raises:
            RuntimeError: samples are left.
        """
        if self._data and self.cursor != Cursor(epoch + 1):
            raise RuntimeError(f"the loop left epoch {epoch + 1} before its end, but each sample of Data has to count")
