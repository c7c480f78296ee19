"""What all ranks tell each other with every step: the step's loss, whether anyone was asked to stop, and the snapshots.

The mean over the ranks comes about beside the gradients', and is read behind the next step, so nobody waits for it; and
as all ranks read the same mean at the same step, all of them stop there.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final, Self

import torch
import torch.distributed as dist
from torch import Tensor

from kittrain.world.distributed import World
from kittrain.world.order import Cursor

ANYONE: Final = 0.5  # ranks, at least: numbers are rounded


@dataclass(frozen=True, kw_only=True)
class Step:
    """A finished optimizer step.

    Attributes:
        number: from 1 on.
        generation: of the ranks that took it.
        cursor: where the data stand behind it.
        ids: the samples that this rank took part with.
        size: samples of all ranks.
        loss: mean over the global batch.
    """

    number: int
    generation: int
    cursor: Cursor
    ids: list[int]
    size: int
    loss: float = float("nan")


@dataclass(frozen=True, kw_only=True)
class Word:
    """What a rank tells beside its loss.

    Attributes:
        stop: whether it was asked to stop.
        written: whether it has written its part of the last snapshot.
        due: whether it is time for the next one.
        kept: whether its last copy in main memory is whole.
    """

    stop: bool = False
    written: bool = False
    due: bool = False
    kept: bool = False

    def beside(self, loss: Tensor, dtype: torch.dtype, *, share: float) -> Tensor:
        """The loss, and for each of these that is true a share, (5,): what the ranks average, or add up.

        Args:
            loss: of this rank.
            dtype: of the numbers.
            share: so that all ranks together give how many of them said it. Where numbers are averaged it is their
                number: what is added up then are whole numbers, which no rounding adds up to another one. Shares of
                the mean would not do, as each is rounded, and with ten thousand ranks the sum is off by more than one.
        """
        values = torch.zeros(5, dtype=dtype, device=loss.device)
        values[0] = loss.detach()
        for index, said in enumerate((self.stop, self.written, self.due, self.kept), start=1):
            if said:
                values[index] = share  # a fill on the device: copying a list there would wait for all of its work
        return values


class Mean:
    """The mean of the ranks' losses, and how many of them said each word: known once it is read.

    Args:
        values: these numbers, once ``work`` is done.
        work: what adds it up.
    """

    def __init__(self, values: Tensor, work: dist.Work | None = None) -> None:
        self._values = values
        self._work = work
        self._copied: torch.cuda.Event | None = None
        if values.device.type == "cuda":  # copied as soon as it is known, so that reading waits for no later kernel
            self._wait()  # of the stream, not of this process
            self._values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def read(self) -> list[float]:
        """The loss, and how many ranks said each word."""
        if self._copied:
            self._copied.synchronize()
        else:
            self._wait()
        means: list[float] = self._values.tolist()
        return means

    def _wait(self) -> None:
        if self._work:
            self._work.wait()


def added_up(loss: Tensor, word: Word) -> Mean:
    """Start to add up what the ranks tell, for gradients that nothing can ride along with. Collective.

    Args:
        loss: this rank's part; the ranks' parts add up to the mean.
        word: this rank's.
    """
    values = word.beside(loss, torch.float64, share=1)
    return Mean(values, dist.all_reduce(values, async_op=True) if dist.is_initialized() else None)


class Pulse:
    """Collective: all ranks send and flush at the same steps.

    Attributes:
        heard: the ranks' words together, as of the last step read: any of them was asked to stop, all of them have
            written, for any of them it is time, all of them keep a copy; equal on all ranks.
    """

    def __init__(self, world: World) -> None:
        self._everyone = world.size - 0.5  # numbers are rounded
        self._pending: tuple[Step, Mean] | None = None
        self.heard = Word()

    def send(self, step: Step, mean: Mean) -> Step | None:
        """Take a step, and read the one before it, if any.

        Args:
            step: without its loss.
            mean: of what the ranks tell with it (``Word.beside``).
        """
        before = self.flush()
        self._pending = step, mean
        return before

    def flush(self) -> Step | None:
        """Read the step sent last, if it has not been read yet; then what was heard of snapshots is of the past."""
        if self._pending is None:
            self.heard = Word(stop=self.heard.stop)
            return None
        step, mean = self._pending
        self._pending = None
        loss, stop, written, due, kept = mean.read()
        self.heard = Word(
            stop=stop > ANYONE, written=written > self._everyone, due=due > ANYONE, kept=kept > self._everyone
        )
        return replace(step, loss=loss)


class StopRequest:
    """SIGTERM or SIGINT, noted and not acted on: true once one came. Later ones change nothing.

    A context, in the main thread; the former handlers come back at its end.
    """

    def __init__(self) -> None:
        self.asked = False
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
