"""What the ranks exchange with every step: the step's loss, stop requests, and the progress of snapshots.

The ranks' mean is computed along with the gradients and read after the next step, so no rank waits for it. All ranks
read the same mean at the same step, so all of them stop at the same step.

Why: decision 20.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FrameType
from typing import Any, Final, Protocol, Self

import torch
import torch.distributed as dist
from torch import Tensor

from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor

ANY_RANK: Final = 0.5  # count of ranks that means at least one: counts are rounded


@dataclass(slots=True, kw_only=True)
class Step:
    """A finished optimizer step. It is not frozen, as creating a frozen one takes four times as long.

    Attributes:
        number: from 1 on.
        generation: of the ranks that took it.
        cursor: position in the data after it.
        ids: this rank's samples.
        size: number of samples of all ranks; 0 if unknown.
        epoch: that it belongs to, from 0 on.
        loss: mean over the global batch; NaN until it is known.
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

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, *, stop: bool, written: bool, due: bool, copied: bool) -> Self:
        """The message with these flags, made once: each step asks for two."""
        return cls(stop=stop, written=written, due=due, copied=copied)


class MessageEncoder:
    """Makes of a rank's loss and message the numbers that the ranks average, or sum: with one kernel for each step.

    Args:
        device: of the losses.
        dtype: of the numbers, floating.
        weight: chosen so that the result for all ranks is the number of ranks that set a flag: 1 for a sum, the number
            of ranks for a mean. Then only whole numbers are added, which is exact. Adding 1 / ranks would not be: with
            ten thousand ranks, rounding errors add up to more than one rank.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, *, weight: int) -> None:
        self._weight = weight
        self._new = partial(torch.zeros, device=device)
        self._dtype = dtype
        self._templates: dict[tuple[bool, ...], tuple[Tensor, Tensor]] = {}

    def encode(self, message: StepMessage, loss: Tensor, samples: int | None = None) -> Tensor:
        """The loss, and ``weight`` or 0 for each flag, (5,); with a number of samples, which is summed up, (6,).

        Args:
            message: of this rank.
            loss: of this rank, one number.
            samples: of this rank in the step.
        """
        flags = message.stop, message.written, message.due, message.copied, samples is not None
        if flags not in self._templates:
            self._templates[flags] = self._template(*flags)
        first, others = self._templates[flags]
        values = torch.where(first, loss.reshape(()) if loss.ndim else loss, others)  # not a sum: a loss may be NaN
        if samples is not None:
            values[5] = samples
        return values

    def _template(self, *flags: bool) -> tuple[Tensor, Tensor]:
        """A mask of the first number, and an encoded message with a loss of 0, and room for the samples.

        They are filled on the device: copying a list to a GPU would wait for all of its work.
        """
        *sent, samples = flags
        size = 6 if samples else 5
        first, others = self._new(size, dtype=torch.bool), self._new(size, dtype=self._dtype)
        first[0] = True
        for index, flag in enumerate(sent, start=1):
            if flag:
                others[index] = self._weight
        return first, others


class Mean(Protocol):
    """The mean of the ranks' losses, and how many ranks set each flag; with their samples, if these were sent.

    Attributes:
        sent: whether this rank has sent its part; if not, reading the mean sends it.
    """

    @property
    def sent(self) -> bool:
        """See above."""
        ...

    def read(self) -> list[float]:
        """Wait for them."""
        ...


class PendingMean:
    """A ``Mean`` that is being computed; it can be read once.

    Args:
        values: these numbers (5,), once ``work`` is done; without ``work`` they may change afterwards. A list is
            a lone rank's.
        work: the collective that computes them.
        parts: what the first number, a sum of losses, is still to be divided by.
    """

    sent: Final = True

    def __init__(self, values: Tensor | list[float], work: dist.Work | None = None, *, parts: int = 1) -> None:
        self._parts = parts
        self._read: Callable[[], list[float]]
        if isinstance(values, list):
            self._read = values.copy
        elif values.is_cuda:
            if work:
                work.wait()  # makes the stream wait, not this process
            self._read = _copied(values)
        elif work:
            self._read = partial(_wait, work, values)
        else:
            self._read = partial(list, values.tolist())

    def read(self) -> list[float]:
        """Wait for the loss, and the number of ranks that set each flag."""
        loss, *others = self._read()
        return [loss / self._parts, *others]


def _wait(work: dist.Work, values: Tensor) -> list[float]:
    work.wait()
    numbers: list[float] = values.tolist()
    return numbers


class _PinnedCopy:
    """Page-locked memory for a few numbers of a GPU."""

    def __init__(self, like: Tensor) -> None:
        self._values = torch.empty_like(like, device="cpu", pin_memory=True)
        self._done = torch.cuda.Event()

    def copy(self, values: Tensor) -> None:
        """Start to copy, as soon as the values are computed, so that ``take`` waits for no later kernel."""
        self._values.copy_(values, non_blocking=True)
        self._done.record()

    def take(self) -> list[float]:
        """Wait for the numbers. The memory can be used again."""
        self._done.synchronize()
        numbers: list[float] = self._values.tolist()
        _free_copies(self._values.numel(), self._values.dtype).append(self)
        return numbers


@lru_cache
def _free_copies(_count: int, _dtype: torch.dtype) -> list[_PinnedCopy]:
    """Copies that are not used at the moment: allocating one takes longer than a step's message may."""
    return []


def _copied(values: Tensor) -> Callable[[], list[float]]:
    free = _free_copies(values.numel(), values.dtype)
    copy = free.pop() if free else _PinnedCopy(values)
    copy.copy(values)
    return copy.take


@lru_cache
def _sum_encoder(device: torch.device) -> MessageEncoder:
    return MessageEncoder(device, torch.float64, weight=1)


def all_reduce_message(loss: Tensor, message: StepMessage, *, samples: int | None = None) -> PendingMean:
    """Start to sum up the ranks' messages, where the gradients cannot carry them. Collective.

    Args:
        loss: this rank's part; the sum of all parts is the mean.
        message: this rank's.
        samples: of this rank in the step, to be added up; None: not known.
    """
    return summed_up(_sum_encoder(loss.device).encode(message, loss.detach(), samples))


def average_message(
    loss: Tensor | float | None, message: StepMessage, world: World, *, samples: int = 0
) -> PendingMean:
    """Start to average the ranks' losses, and to sum up the rest of their messages. Collective.

    On a CPU the numbers are at hand, and a tensor is made of them at once: without an operation for each.

    Args:
        loss: this rank's; None: not known.
        message: this rank's.
        world: all ranks.
        samples: of this rank in the step, to be added up; 0: not known.
    """
    if world.device.type != "cpu" or (isinstance(loss, Tensor) and (type(loss) is not Tensor or not loss.is_cpu)):
        values = _sum_encoder(world.device).encode(message, _on_device(loss, world.device), samples)
        return summed_up(values, parts=world.size)
    value = math.nan if loss is None else loss.item() if isinstance(loss, Tensor) else loss
    numbers = [value, message.stop, message.written, message.due, message.copied, samples]
    if world.size == 1:
        return PendingMean(numbers)
    return summed_up(torch.tensor(numbers, dtype=torch.float64), parts=world.size)


def summed_up(values: Tensor, *, parts: int = 1) -> PendingMean:
    """Start to add up the ranks' numbers. Collective.

    By the group's own method: ``dist.all_reduce`` checks arguments and writes logs, for a quarter more time.

    Args:
        values: of this rank; the first is a loss. They are overwritten.
        parts: what the sum of losses is to be divided by.
    """
    group = dist.group.WORLD
    work = group.allreduce([values], _asynchronous()) if group and group.size() > 1 else None
    return PendingMean(values, work, parts=parts)


@lru_cache(maxsize=1)
def _asynchronous() -> dist.AllreduceOptions:
    options = dist.AllreduceOptions()
    if hasattr(options, "asyncOp"):  # newer versions of torch
        options.asyncOp = True
    return options


class StepSync:
    """Reads each step's mean one step after it was sent. Collective: all ranks send and flush at the same steps.

    Attributes:
        received: the ranks' messages combined, as of the last step read; equal on all ranks. ``stop`` and ``due`` are
            set if any rank sets them, ``written`` and ``copied`` if all ranks do.
    """

    def __init__(self, world: World) -> None:
        self._all_ranks = world.size - 0.5  # counts are rounded
        self._pending: list[tuple[Step, Mean]] = []
        self._sent = True  # with the last step, what is pending was
        self.received = StepMessage()

    def send(self, step: Step, mean: Mean) -> list[Step]:
        """Add a step, and read those before it, if they are sent.

        Args:
            step: without its loss.
            mean: of the messages that the ranks send with it.
        """
        earlier, sent = len(self._pending), self._sent
        self._pending.append((step, mean))
        self._sent = mean.sent
        if sent and earlier:
            return self._take(earlier)
        self._forget()
        return []

    def flush(self) -> list[Step]:
        """Read the last steps, if they have not been read yet; else only a received ``stop`` stays set."""
        if not self._pending:
            self._forget()
            return []
        return self._take(len(self._pending))

    def left(self) -> list[Step]:
        """The steps that are not read, for a rank that has lost others: with their loss, where that has come."""
        for step, mean in self._pending:
            if math.isnan(step.loss) and mean.sent:
                with suppress(RuntimeError):  # the exchange has failed
                    step.loss = mean.read()[0]
        return [step for step, _ in self._pending]

    def _take(self, count: int) -> list[Step]:
        """Read the first ones; all are kept if that fails."""
        for step, mean in self._pending[:count]:
            self._read(step, mean)
        taken = [step for step, _ in self._pending[:count]]
        del self._pending[:count]
        return taken

    def _read(self, step: Step, mean: Mean) -> None:
        step.loss, stop, written, due, copied, *samples = mean.read()
        self.received = StepMessage.of(
            stop=stop > ANY_RANK,
            written=written > self._all_ranks,
            due=due > ANY_RANK,
            copied=copied > self._all_ranks,
        )
        if samples and not step.size:
            step.size = round(samples[0])

    def _forget(self) -> None:
        """Nothing has been received: the flags are those of one step."""
        self.received = StepMessage.of(stop=self.received.stop, written=False, due=False, copied=False)


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


def _on_device(loss: Tensor | float | None, device: torch.device) -> Tensor:
    if isinstance(loss, Tensor):
        return loss.detach().to(device)
    return torch.full((), math.nan if loss is None else loss, dtype=torch.float64, device=device)
