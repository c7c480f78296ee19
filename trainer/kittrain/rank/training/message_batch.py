"""The messages of short steps, exchanged several at a time: an exchange costs as much as a step of half a millisecond.

Why: decision 20.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from kittrain.rank.training.step_sync import Mean, StepMessage, average_message, summed_up
from kittrain.rank.world.distributed import World

TARGET_SECONDS: Final = 0.02  # of the steps that share an exchange
MOST_STEPS: Final = 16
FEW_STEPS: Final = 3  # of fewer, each counts


class MessageBatch:
    """Collects steps until their messages are exchanged. Collective: all ranks add and read at the same steps.

    How many steps share an exchange follows from the time that rank 0 took for each, as all ranks have received it with
    an earlier exchange; the longest one is left out, as an evaluation or a snapshot may be in it. The flags are those
    that a rank has when it sends.

    Args:
        world: all ranks.
        message: called when the messages are sent.
        most: steps that may share an exchange. On a GPU, where an exchange takes no processor time to speak of, each
            step has its own.
    """

    def __init__(self, world: World, message: Callable[[], StepMessage], *, most: int) -> None:
        self._world = world
        self._message = message
        self._together = world.device.type == "cpu" and world.size > 1
        self._most = max(1, min(most, MOST_STEPS))
        self._steps = 1  # that share the next exchange
        self._current = _Exchange()
        self._since = self._last = time.monotonic()
        self._longest = 0.0  # step since then

    def add(self, loss: Tensor | float | None, samples: int) -> Mean:
        """A step has ended; returns the mean of all ranks' messages of it.

        Args:
            loss: of this rank; None: not known.
            samples: of this rank, to be added up; 0: not known.
        """
        if not self._together:
            return average_message(loss, self._message(), self._world, samples=samples)
        value = math.nan if loss is None else loss.item() if isinstance(loss, Tensor) else loss
        self._longest, self._last = max(self._longest, (now := time.monotonic()) - self._last), now
        mean = SharedMean(self, self._current, self._current.add(value, samples))
        if len(self._current.losses) >= self._steps:
            self.send(self._current)
        return mean

    def send(self, exchange: _Exchange) -> None:
        """Start to exchange the messages of the steps so far, unless that is done."""
        if exchange.sum is not None:
            return
        exchange.send(self._message(), self._seconds(len(exchange.losses)) if self._world.is_main else 0.0)
        self._since, self._longest = self._last, 0.0
        self._current = _Exchange()

    def _seconds(self, steps: int) -> float:
        """Of each of the last steps."""
        took = self._last - self._since
        return took / steps if steps < FEW_STEPS else (took - self._longest) / (steps - 1)

    def read(self, exchange: _Exchange) -> list[float]:
        """The sums of the ranks' numbers, of which the first are the losses; sends what is not sent."""
        self.send(exchange)
        numbers, first = exchange.read()
        if first:
            self._steps = max(1, min(self._most, int(TARGET_SECONDS / max(numbers[-1], 1e-6))))
        return numbers

    def mean_of(self, exchange: _Exchange, index: int) -> list[float]:
        """The mean loss of a step of an exchange, how many ranks set each flag, and their samples."""
        numbers, steps = self.read(exchange), len(exchange.losses)
        return [numbers[index] / self._world.size, *numbers[2 * steps : 2 * steps + 4], numbers[steps + index]]


class _Exchange:
    """The numbers of this rank: losses, samples, flags and seconds a step.

    Attributes:
        losses: of the steps so far.
        sum: of all ranks' numbers, once they are sent.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self._samples: list[int] = []
        self.sum: Mean | None = None
        self._numbers: list[float] = []

    def add(self, loss: float, samples: int) -> int:
        """Add a step; returns its index."""
        self.losses.append(loss)
        self._samples.append(samples)
        return len(self.losses) - 1

    def send(self, message: StepMessage, seconds: float) -> None:
        """Start to add up the ranks' numbers."""
        flags = message.stop, message.written, message.due, message.copied
        numbers = [*self.losses, *self._samples, *flags, seconds]
        self.sum = summed_up(torch.tensor(numbers, dtype=torch.float64))

    def read(self) -> tuple[list[float], bool]:
        """Wait for the sums; and whether this is the first time."""
        first = not self._numbers
        if first and self.sum is not None:
            self._numbers = self.sum.read()
        return self._numbers, first


class SharedMean:
    """The mean of a step whose messages are exchanged along with those of others.

    Args:
        batch: that has the exchange.
        exchange: of the step.
        index: of the step in it.
    """

    def __init__(self, batch: MessageBatch, exchange: _Exchange, index: int) -> None:
        self._batch = batch
        self._exchange = exchange
        self._index = index

    @property
    def sent(self) -> bool:
        """See ``Mean``."""
        return self._exchange.sum is not None

    def read(self) -> list[float]:
        """See ``Mean``. Collective, where it is not sent."""
        return self._batch.mean_of(self._exchange, self._index)
