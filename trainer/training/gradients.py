"""How the gradients of a step come about: each rank's mean, averaged by DDP while the backward pass still runs.

What the ranks tell each other rides along: as the gradient of a parameter that is none of the model's, so that a step
costs no collective beside DDP's own. ``trainer.training.virtual`` is the other way, which gives the same bits whatever
the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.system.heartbeat import Phase
from trainer.training.pulse import Mean, Word, added_up
from trainer.world.data import Batch, Data, to_device
from trainer.world.distributed import World
from trainer.world.order import Cursor

Loss = Callable[[nn.Module, Any], Tensor]
Parts = list[Batch]  # what one rank takes of a step
Say = Callable[[], Word]  # asked as late as can be


class Gradients(Protocol):
    """Collective: all ranks take the same steps."""

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """This rank's part of each step, from a cursor to the end of the last epoch."""

    def learn(self, parts: Parts, say: Say) -> Mean:
        """Set the gradients of the global batch's mean loss, which were cleared before.

        Returns:
            That loss, and what the ranks say beside it: ``Word.beside``, averaged.
        """


class Averaged:
    """One batch a rank, averaged by DDP.

    Args:
        world: all ranks.
        model: its parameters become rank 0's.
        loss: from the model and a batch, the mean over the batch's samples.
        data: what to learn from.
    """

    def __init__(self, world: World, model: nn.Module, loss: Loss, data: Data) -> None:
        self._world = world
        self._rider = nn.Parameter(torch.zeros(5, device=world.device))
        self._model = world.parallel(model, self._rider)
        self._loss = loss
        self._data = data

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol."""
        return ([batch] for batch in self._data.batches(cursor, epochs, self._world))

    def learn(self, parts: Parts, say: Say) -> Mean:
        """See the protocol."""
        (batch,) = parts
        loss = self._loss(self._model, to_device(batch.samples, self._world.device)) * batch.weight
        self._world.heart.beat(Phase.BACKWARD)
        if not isinstance(self._model, DistributedDataParallel):
            loss.backward()
            return added_up(self._world, loss / self._world.size, say())
        self._rider.grad = None
        (loss + (self._rider * say().beside(loss, self._rider.dtype)).sum()).backward()  # the rider is 0
        return Mean(cast("Tensor", self._rider.grad).clone())  # it lies in a bucket, and the next step's goes there
