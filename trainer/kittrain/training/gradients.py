"""The gradients of a step: each rank's mean, averaged by DDP during the backward pass.

The ranks' messages are piggybacked on the gradients: they are the gradient of an extra parameter that does not belong
to the model. So a step needs no collective besides DDP's own. ``kittrain.training.virtual_ranks`` is the alternative,
with the same bits for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from kittrain.system.heartbeat import Phase
from kittrain.torch_private.ranks import ignore_in_ddp, ignored_by_ddp
from kittrain.training import batchnorm
from kittrain.training.step_sync import PendingMean, StepMessage, all_reduce_message
from kittrain.world.data import Batch, Data
from kittrain.world.distributed import World
from kittrain.world.eval_mode import eval_mode
from kittrain.world.order import Cursor
from kittrain.world.replicas import DDPOptions, has_sharded_modules
from kittrain.world.transfer import to_device

Loss = Callable[[nn.Module, Any], Tensor]
Scale = Callable[[Tensor], Tensor]
Parts = list[Batch]  # one rank's batches of a step
MessageSource = Callable[[], StepMessage]  # called as late as possible


class Gradients(Protocol):
    """Collective: all ranks take the same steps."""

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """This rank's part of each step, from a cursor to the end of the last epoch."""

    def backward(self, parts: Parts, message: MessageSource) -> PendingMean:
        """Set the gradients of the global batch's mean loss; they have to be cleared before.

        Returns:
            The encoded messages of the ranks (``StepMessage.encode``), averaged.
        """


class AveragedGradients:
    """One batch per rank, or several that are computed one after the other, averaged by DDP.

    Args:
        world: all ranks.
        model: its parameters become rank 0's.
        loss: from the model and a batch, the mean over the batch's samples.
        data: the training data.
        ddp: options of DDP.
        accumulate: batches per rank and step.
        scale: scales the loss whose gradients are computed, as a GradScaler does; not the one that is reported.

    Raises:
        ValueError: a step has fewer samples than batches.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        data: Data,
        ddp: DDPOptions = DDPOptions(),  # noqa: B008  frozen
        *,
        accumulate: int = 1,
        scale: Scale | None = None,
    ) -> None:
        batches = world.size * accumulate
        if accumulate > 1 and data.order.batch < batches:
            raise ValueError(
                f"{data.order.batch} samples per step cannot be divided into {accumulate} batches on each of "
                f"{world.size} ranks"
            )
        self._world = world
        self._data = data
        self._sharers = [seen_as(world, world.rank * accumulate + one, batches) for one in range(accumulate)]
        self._batchnorms = batchnorm.local_batchnorms(model)
        self._minimum = batchnorm.min_samples_per_rank(model, data.order.batch, batches)
        self._step = _StepModule(world, model, loss, scale or (lambda given: given))
        self._parallel = world.parallel(self._step, ddp)
        replicated = isinstance(self._parallel, DistributedDataParallel)
        self._piggyback = replicated and ddp.comm_hook is None  # a hook may change the values, e.g. round them

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol."""
        streams = [self._data.batches(cursor, epochs, one, minimum=self._minimum) for one in self._sharers]
        return map(list, zip(*streams, strict=True))

    def backward(self, parts: Parts, message: MessageSource) -> PendingMean:
        """See the protocol."""
        step, (*first, last) = self._step, parts
        step.carrier.grad = None
        sums = []
        for batch in first:
            with without_average(self._parallel):
                self._backward(batch, StepMessage)
            sums.append(step.local_loss)
        self._backward(last, message)
        if self._piggyback:
            return PendingMean(cast("Tensor", step.carrier.grad).clone())  # the next step overwrites its bucket
        return all_reduce_message(sum(sums, step.local_loss) / self._world.size, step.message)

    def _backward(self, batch: Batch, message: MessageSource) -> None:
        weight = batch.weight / len(self._sharers)
        with eval_mode([] if batch.ids else self._batchnorms):  # a batch of weight 0 must not change statistics
            loss = self._parallel(to_device(batch.take(), self._world.device), weight, message)
        loss.backward()


def seen_as(world: World, rank: int, size: int) -> World:
    """The world as a rank of another number of ranks, to share data."""
    return replace(world, env=replace(world.env, rank=rank, world_size=size))


@contextmanager
def without_average(parallel: nn.Module) -> Iterator[None]:
    """Context manager: backward passes add up gradients on this rank only."""
    if isinstance(parallel, DistributedDataParallel):
        with parallel.no_sync():
            yield
        return
    sharded = [module for module in parallel.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.set_requires_gradient_sync(False, recurse=False)
    yield
    for module in sharded:
        module.set_requires_gradient_sync(True, recurse=False)


class _StepModule(nn.Module):
    """A step's loss as a module, so that DDP finds every parameter that is used, however the loss is computed.

    The loss function gets the model itself, not DDP's wrapper.

    Attributes:
        carrier: zeros (5,); its gradient is this rank's encoded message.
        local_loss: this rank's last loss, weighted.
        message: sent with that loss.
    """

    def __init__(self, world: World, model: nn.Module, loss: Loss, scale: Scale) -> None:
        super().__init__()
        self._world = world
        self._scale = scale
        self._loss = (loss,)  # in a tuple: a loss that is a module must not be registered as a submodule
        self.model = model
        carrier = torch.zeros(5, dtype=torch.float32, device=world.device)
        self.carrier = carrier if has_sharded_modules(model) else nn.Parameter(carrier)  # without DDP, no averaging
        self.local_loss = torch.zeros(())
        self.message = StepMessage()
        ignore_in_ddp(self, [f"model.{name}" for name in ignored_by_ddp(model)])

    def forward(self, samples: Any, weight: float, message: MessageSource) -> Tensor:
        """The weighted loss."""
        (compute,) = self._loss
        loss = compute(self.model, samples) * weight
        self._world.heartbeat.beat(Phase.BACKWARD)
        self.local_loss, self.message = loss.detach(), message()
        encoded = self.message.encode(loss, self.carrier.dtype, weight=self._world.size)
        return self._scale(loss) + (self.carrier * encoded).sum()
