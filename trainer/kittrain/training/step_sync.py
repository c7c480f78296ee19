"""What the ranks exchange with every step: the step's loss, stop requests, and the progress of snapshots.

The ranks' mean is computed along with the gradients and read after the next step, so no rank waits for it. All ranks
read the same mean at the same step, so all of them stop at the same step.
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

ANY_RANK: Final = 0.5  # count of ranks that means at least one: counts are rounded


@dataclass(frozen=True, kw_only=True)
class Step:
    """A finished optimizer step.

    Attributes:
        number: from 1 on.
        generation: of the ranks that took it.
        cursor: position in the data after it.
        ids: this rank's samples.
        size: number of samples of all ranks; 0 if unknown.
        epoch: that it belongs to, from 0 on.
        loss: mean over the global batch.
        has_loss: whether the script has given one.
    """

    number: int
    generation: int
    cursor: Cursor
    ids: list[int]
    size: int
    epoch: int = 0
    loss: float = float("nan")
    has_loss: bool = True


@dataclass(frozen=True, kw_only=True)
class StepMessage:
    """What a rank sends along with its loss.

    Attributes:
        stop: it was asked to stop.
        written: it has written its part of the last snapshot.
        due: it is time for the next snapshot.
        copied: its last copy in main memory is complete.
    """

    stop: bool = False
    written: bool = False
    due: bool = False
    copied: bool = False

    def encode(self, loss: Tensor, dtype: torch.dtype, *, weight: float, samples: int | None = None) -> Tensor:
        """The loss, and ``weight`` or 0 for each flag, (5,): what the ranks average, or sum.

        Args:
            loss: of this rank.
            dtype: of the result.
            weight: chosen so that the result for all ranks is the number of ranks that set a flag: 1 for a sum, the
                number of ranks for a mean. Then only whole numbers are added, which is exact. Adding 1 / ranks would
                not be: with ten thousand ranks, rounding errors add up to more than one rank.
            samples: a number to be summed up, too; then the result is (6,).
        """
        values = torch.zeros(5 if samples is None else 6, dtype=dtype, device=loss.device)
        values[0] = loss.detach()
        for index, flag in enumerate((self.stop, self.written, self.due, self.copied), start=1):
            if flag:
                values[index] = weight  # a fill on the device: copying a list would wait for all of its work
        if samples is not None:
            values[5] = samples
        return values


class PendingMean:
    """The mean of the ranks' losses, and how many ranks set each flag; available once it is read.

    Args:
        values: these numbers (5,), once ``work`` is done.
        work: the collective that computes them.
    """

    def __init__(self, values: Tensor, work: dist.Work | None = None) -> None:
        self._values = values
        self._work = work
        self._copied: torch.cuda.Event | None = None
        if values.device.type == "cuda":  # copied as soon as it is computed, so that read() waits for no later kernel
            self._wait()  # makes the stream wait, not this process
            self._values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def read(self) -> list[float]:
        """Wait for the loss, and the number of ranks that set each flag."""
        if self._copied:
            self._copied.synchronize()
        else:
            self._wait()
        means: list[float] = self._values.tolist()
        return means

    def _wait(self) -> None:
        if self._work:
            self._work.wait()


def all_reduce_message(loss: Tensor, message: StepMessage, *, samples: int | None = None) -> PendingMean:
    """Start to sum up the ranks' messages, where the gradients cannot carry them. Collective.

    Args:
        loss: this rank's part; the sum of all parts is the mean.
        message: this rank's.
        samples: of this rank in the step, to be added up; None: not known.
    """
    values = message.encode(loss, torch.float64, weight=1, samples=samples)
    return PendingMean(values, dist.all_reduce(values, async_op=True) if dist.is_initialized() else None)


class StepSync:
    """Reads each step's mean one step later. Collective: all ranks send and flush at the same steps.

    Attributes:
        received: the ranks' messages combined, as of the last step read; equal on all ranks. ``stop`` and ``due`` are
            set if any rank sets them, ``written`` and ``copied`` if all ranks do.
    """

    def __init__(self, world: World) -> None:
        self._all_ranks = world.size - 0.5  # counts are rounded
        self._pending: tuple[Step, PendingMean] | None = None
        self.received = StepMessage()

    def send(self, step: Step, mean: PendingMean) -> Step | None:
        """Add a step, and read the one before it, if any.

        Args:
            step: without its loss.
            mean: of the messages that the ranks send with it.
        """
        previous = self.flush()
        self._pending = step, mean
        return previous

    def flush(self) -> Step | None:
        """Read the last step, if it has not been read yet; else only a received ``stop`` stays set."""
        if self._pending is None:
            self.received = StepMessage(stop=self.received.stop)
            return None
        step, mean = self._pending
        self._pending = None
        loss, stop, written, due, copied, *samples = mean.read()
        self.received = StepMessage(
            stop=stop > ANY_RANK,
            written=written > self._all_ranks,
            due=due > ANY_RANK,
            copied=copied > self._all_ranks,
        )
        return replace(step, loss=loss, size=round(samples[0]) if samples and not step.size else step.size)


class StopRequest:
    """Context manager, for the main thread, that records SIGTERM or SIGINT; on exit, the former handlers are restored.

    Attributes:
        requested: whether a signal has arrived; later ones change nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._former[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _record(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
