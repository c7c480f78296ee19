"""How the gradients of a step come about: each rank's mean, averaged by DDP while the backward pass still runs.

What the ranks tell each other rides along: as the gradient of a parameter that is none of the model's, so that a step
costs no collective beside DDP's own. ``kittrain.training.virtual`` is the other way, which gives the same bits whatever
the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kittrain.system.heartbeat import Phase
from kittrain.training import batchnorm
from kittrain.training.pulse import Mean, Word, added_up
from kittrain.world.data import Batch, Data
from kittrain.world.distributed import World
from kittrain.world.modes import evaluating
from kittrain.world.order import Cursor
from kittrain.world.replicas import DDPOptions, sharded
from kittrain.world.transfer import to_device

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
        ddp: what DDP is told.
    """

    def __init__(self, world: World, model: nn.Module, loss: Loss, data: Data, ddp: DDPOptions = DDPOptions()) -> None:  # noqa: B008  frozen
        self._world = world
        self._data = data
        self._normalizing = batchnorm.normalizing(model)
        self._least = batchnorm.least(model, data.order.batch, world.size)
        self._step = _Step(world, model, loss)
        self._parallel = world.parallel(self._step, ddp)
        replicated = isinstance(self._parallel, DistributedDataParallel)
        self._rides = replicated and ddp.comm_hook is None  # a hook may round what it averages, or worse

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol."""
        return ([batch] for batch in self._data.batches(cursor, epochs, self._world, least=self._least))

    def learn(self, parts: Parts, say: Say) -> Mean:
        """See the protocol."""
        (batch,) = parts
        step = self._step
        step.rider.grad = None
        with evaluating([] if batch.ids else self._normalizing):  # what weighs nothing changes no statistics
            loss = self._parallel(to_device(batch.samples, self._world.device), batch.weight, say)
        loss.backward()
        if self._rides:
            return Mean(cast("Tensor", step.rider.grad).clone())  # it lies in a bucket, and the next step's goes there
        return added_up(step.own / self._world.size, step.word)


class _Step(nn.Module):
    """A step's loss as a module, so that DDP knows of all that has a part in it, however it is computed.

    The loss is given the model itself, whether or not there are other ranks.

    Attributes:
        rider: is 0; its gradient is what this rank tells.
        own: this rank's last loss, weighted.
        word: what it told beside that.
    """

    def __init__(self, world: World, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self._world = world
        self._given = (loss,)  # a loss may be a module, and need not become a part of this one
        self.model = model
        rider = torch.zeros(5, dtype=torch.float32, device=world.device)
        self.rider = rider if sharded(model) else nn.Parameter(rider)  # nothing averages it where DDP does not
        self.own = torch.zeros(())
        self.word = Word()
        ignored = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
        self._ddp_params_and_buffers_to_ignore = [f"model.{name}" for name in ignored]

    def forward(self, samples: Any, weight: float, say: Say) -> Tensor:
        """The weighted loss; ``say`` is asked as late as can be."""
        (given,) = self._given
        loss = given(self.model, samples) * weight
        self._world.heart.beat(Phase.BACKWARD)
        self.own, self.word = loss.detach(), say()
        told = self.word.beside(loss, self.rider.dtype, share=self._world.size)
        return loss + (self.rider * told).sum()
