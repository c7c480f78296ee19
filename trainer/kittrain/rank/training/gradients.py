"""The gradients of a step: each rank's mean, averaged by DDP during the backward pass.

The ranks' messages are piggybacked on the gradients: they are the gradient of an extra parameter that does not belong
to the model. So a step needs no collective besides DDP's own, and on a GPU only three small kernels: one makes the
message, one copies it into DDP's bucket, one copies the mean to the host. A lone rank's message stays where it is.
``kittrain.rank.training.virtual_ranks`` is the alternative, with the same bits for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from kittrain.rank.training import batchnorm
from kittrain.rank.training.step_sync import (
    MessageEncoder,
    PendingMean,
    StepMessage,
    all_reduce_message,
    average_message,
)
from kittrain.rank.world.data import Batch, Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.eval_mode import eval_mode
from kittrain.rank.world.order import Cursor
from kittrain.rank.world.replicas import DDPOptions, has_sharded_modules
from kittrain.rank.world.transfer import copy_behind, to_device
from kittrain.system.heartbeat import Phase
from kittrain.torch_private.ranks import backward, ignore_in_ddp, ignored_by_ddp

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
        sharded = has_sharded_modules(model)  # has no DDP, which would average the carrier's gradient
        carries = world.size > 1 and not sharded
        self._carrier = nn.Parameter(torch.zeros(5, device=world.device)) if carries else None
        self._piggyback = ddp.comm_hook is None  # a hook may change the values, e.g. round them
        self._step = _StepModule(world, model, loss, scale, self._carrier)
        self._parallel = world.parallel(self._step, ddp)
        self._encoder = MessageEncoder(world.device, torch.float32, weight=world.size)
        self._seed = torch.ones(())

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol."""
        streams = [self._data.batches(cursor, epochs, one, minimum=self._minimum) for one in self._sharers]
        batches = map(list, zip(*streams, strict=True))
        return moved_ahead(batches, self._world.device) if self._world.device.type == "cuda" else batches

    def backward(self, parts: Parts, message: MessageSource) -> PendingMean:
        """See the protocol."""
        carrier, step, sums = self._carrier, self._step, []
        if carrier is not None:
            carrier.grad = None
        for batch in parts[:-1]:
            with without_average(self._parallel):
                self._backward(batch, StepMessage)
            sums.append(step.sent.loss)
        self._backward(parts[-1], message)
        if carrier is not None and self._piggyback:
            return PendingMean(cast("Tensor", carrier.grad))
        loss = sum(sums, step.sent.loss)
        if self._world.size == 1:
            return average_message(loss, message(), self._world)
        return all_reduce_message(loss / self._world.size, message())

    def _backward(self, batch: Batch, message: MessageSource) -> None:
        weight = batch.weight / len(self._sharers)
        samples = to_device(batch.take(), self._world.device)
        if batch.ids or not self._batchnorms:
            ends = self._parallel(samples, weight)
        else:  # a batch of weight 0 must not change statistics
            with eval_mode(self._batchnorms):
                ends = self._parallel(samples, weight)
        del samples  # its memory is free during the backward pass, unless that needs it
        loss, *carriers = ends
        encoded = (self._encoder.encode(message(), self._step.sent.loss),) if carriers else ()
        if not loss.requires_grad and (carriers or self._world.size == 1):  # no parameter was used on this rank
            if carriers:
                backward(tuple(carriers), encoded)
        elif type(loss) is Tensor and loss.numel() == 1 and loss.requires_grad:
            backward(ends, (self._seed_of(loss), *encoded))
        else:  # as the tensor's type has it, or an error
            torch.autograd.backward(ends, [None, *encoded])

    def _seed_of(self, loss: Tensor) -> Tensor:
        """Ones like the loss, kept from step to step: the backward pass would make them anew."""
        seed = self._seed
        if seed.dtype != loss.dtype or seed.shape != loss.shape or seed.device != loss.device:
            seed = self._seed = torch.ones_like(loss)
        return seed


def moved_ahead(steps: Iterator[Parts], device: torch.device) -> Iterator[Parts]:
    """Batches that are copied to a GPU as soon as they are loaded, while the step before still runs there."""
    for parts in steps:
        for batch in parts:
            batch.samples = copy_behind(batch.samples, device)
        yield parts


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
    try:
        yield
    finally:
        for module in sharded:
            module.set_requires_gradient_sync(True, recurse=False)


@dataclass(slots=True)
class _Sent:
    """This rank's last loss, weighted. A module would set it more slowly."""

    loss: Tensor


class _StepModule(nn.Module):
    """A step's loss as a module, so that DDP finds every parameter that is used, however the loss is computed.

    The loss function gets the model itself, not DDP's wrapper.

    Attributes:
        sent: with the next message.
    """

    def __init__(
        self, world: World, model: nn.Module, loss: Loss, scale: Scale | None, carrier: nn.Parameter | None
    ) -> None:
        super().__init__()
        self._world = world
        self._scale = scale
        self._loss = (loss, model)  # in a tuple: a loss that is a module must not be registered as a submodule
        self.model = model
        self.carrier = carrier
        self._carrier = (carrier,)  # a module finds its parameters more slowly
        self.sent = _Sent(torch.zeros(()))
        ignore_in_ddp(self, [f"model.{name}" for name in ignored_by_ddp(model)])

    def forward(self, samples: Any, weight: float) -> tuple[Tensor, ...]:
        """Where the backward pass begins: at the weighted loss, and at the carrier, which gets the encoded message.

        The carrier is a view of itself, whose gradient becomes the carrier's without a copy.
        """
        compute, model = self._loss
        loss = compute(model, samples)
        if weight != 1:  # nearly always, it is 1
            loss = loss * weight
        self._world.heartbeat.beat(Phase.BACKWARD)
        self.sent.loss = loss.detach()
        scaled = self._scale(loss) if self._scale else loss
        (carrier,) = self._carrier
        return (scaled,) if carrier is None else (scaled, carrier.view_as(carrier))
