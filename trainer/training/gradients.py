"""How the gradients of a step come about: each rank's mean, averaged by DDP while the backward pass still runs.

``trainer.training.virtual`` is the other way, which gives the same bits whatever the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from trainer.system.heartbeat import Phase
from trainer.world.data import Batch, Data, to_device
from trainer.world.distributed import World
from trainer.world.order import Cursor

Loss = Callable[[nn.Module, Any], Tensor]
Parts = list[Batch]  # what one rank takes of a step


class Gradients(Protocol):
    """Collective: all ranks take the same steps."""

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """This rank's part of each step, from a cursor to the end of the last epoch."""

    def learn(self, parts: Parts) -> Tensor:
        """Set the gradients of the global batch's mean loss, which were cleared before.

        Returns:
            This rank's part of that loss, (): the ranks' parts add up to it.
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
        self._model = world.parallel(model)
        self._loss = loss
        self._data = data

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol."""
        return ([batch] for batch in self._data.batches(cursor, epochs, self._world))

    def learn(self, parts: Parts) -> Tensor:
        """See the protocol."""
        (batch,) = parts
        loss = self._loss(self._model, to_device(batch.samples, self._world.device)) * batch.weight
        self._world.heart.beat(Phase.BACKWARD)
        loss.backward()
        return loss.detach() / self._world.size
