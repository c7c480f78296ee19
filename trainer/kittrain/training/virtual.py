"""Virtual ranks: the same bits from any number of ranks, and across every restart and resize.

A step's samples are always shared out among V virtual ranks, and each real rank plays a contiguous part of them, one
after the other. The V gradients are added up along one binary tree over the virtual ranks, whoever holds which of
them: floating-point addition is not associative, so it is the order of the sum that must not depend on the world.

It costs V backward passes a step instead of one for each real rank, and an exchange of up to 2 log2 V gradients of
each rank, behind the backward pass, instead of DDP's one during it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kittrain.system.heartbeat import Phase
from kittrain.training import batchnorm
from kittrain.training.gradients import Loss, Parts, Say
from kittrain.training.pulse import Mean, added_up
from kittrain.world import rng
from kittrain.world.data import Batch, Data
from kittrain.world.distributed import World
from kittrain.world.modes import evaluating
from kittrain.world.order import Cursor, portion
from kittrain.world.seeds import derive
from kittrain.world.transfer import to_device

Node = tuple[int, int]  # of the tree: virtual ranks from the first to before the second


def halves(node: Node) -> tuple[Node, Node]:
    """The two children of a node that is not a leaf."""
    low, high = node
    middle = (low + high + 1) // 2
    return (low, middle), (middle, high)


def cover(held: range, node: Node) -> list[Node]:
    """The fewest nodes below (or at) a node that make up those of its virtual ranks that are held, in order."""
    low, high = node
    if held.start <= low and high <= held.stop:
        return [node] if low < high else []
    if high <= held.start or held.stop <= low:
        return []
    return [one for half in halves(node) for one in cover(held, half)]


def total(node: Node, sums: Mapping[Node, Tensor]) -> Tensor:
    """The sum at a node, from the sums at nodes below it: every addition is one of the tree's."""
    if node in sums:
        return sums[node]
    left, right = halves(node)
    return total(left, sums) + total(right, sums)


class VirtualRanks:
    """Gradients that do not depend on the number of ranks, bit by bit. Implements ``gradients.Gradients``.

    Every virtual rank draws its random numbers from a seed of its own, step by step. Buffers, such as the running
    statistics of a BatchNorm, are those that virtual rank 0 leaves, as they are rank 0's under DDP. Bits depend on
    more than this: the hardware, torch's version and its number of threads have to be the same everywhere, and the
    operations deterministic, which is asked of torch for the whole process.

    Args:
        world: all ranks.
        model: its parameters and buffers become rank 0's.
        loss: from the model and a batch, the mean over the batch's samples.
        data: what to learn from.
        count: of virtual ranks; real ranks beyond it idle.

    Raises:
        ValueError: the parameters are of several types.
    """

    def __init__(self, world: World, model: nn.Module, loss: Loss, data: Data, count: int) -> None:
        self._world = world
        self._model = model
        self._loss = loss
        self._data = data
        self._count = count
        self._normalizing = batchnorm.normalizing(model)
        self._least = batchnorm.least(model, data.order.batch, count)
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        if len({one.dtype for one in self._parameters}) > 1:
            raise ValueError("virtual ranks add up all gradients as one: the parameters must be of one type")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch's notes on reproducibility ask for it
        torch.use_deterministic_algorithms(mode=True)
        self._ranges = [cast("range", portion(range(count), rank, world.size)) for rank in range(world.size)]
        self._before: list[Tensor] = []  # the buffers as a step finds them,
        self._left: list[Tensor] = []  # and as it leaves them
        if dist.is_initialized():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.detach(), src=0)

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol: a batch for each virtual rank that this rank plays."""
        worlds = [self._played(virtual) for virtual in self._mine]
        streams = [self._data.batches(cursor, epochs, world, least=self._least) for world in worlds]
        if not streams:
            return ([] for _ in self._data.order.spans(cursor, epochs))
        return map(list, zip(*streams, strict=True))

    def learn(self, parts: Parts, say: Say) -> Mean:
        """See the protocol."""
        self._before = [buffer.clone() for buffer in self._model.buffers()]
        self._left = self._before
        root, coming = (0, self._count), iter(parts)
        held = [cover(part, root) for part in self._ranges]
        mine = [self._summed(node, coming) for node in held[self._world.rank]]
        self._world.heart.beat(Phase.BACKWARD)  # others are waited for from here on
        self._set_buffers(self._left)
        self._world.equalize_buffers(self._model)
        whole = total(root, self._exchanged(mine, held))
        self._set_gradients(whole[:-1])
        part = whole[-1] if self._world.is_main else whole.new_zeros(())  # a sum with zeros is exact in any order
        return added_up(part, say())

    @property
    def _mine(self) -> range:
        return self._ranges[self._world.rank]

    def _played(self, virtual: int) -> World:
        """The world as a virtual rank sees it."""
        return replace(self._world, env=replace(self._world.env, rank=virtual, world_size=self._count))

    def _summed(self, node: Node, parts: Iterator[Batch]) -> Tensor:
        """The sum at a node of which this rank plays all virtual ranks; its batches come in their order."""
        low, high = node
        if high - low == 1:
            return self._gradient(low, next(parts))
        left, right = halves(node)
        return self._summed(left, parts).add_(self._summed(right, parts))

    def _gradient(self, virtual: int, batch: Batch) -> Tensor:
        """A virtual rank's part of the global batch's gradient, flat, with its part of the loss behind it."""
        step = self._data.order.step(self._data.order.after(batch.span))
        rng.seed_all(derive("virtual rank", self._data.order.seed, step, virtual))
        self._set_buffers(self._before)
        weight = batch.weight / self._count
        with evaluating([] if batch.ids else self._normalizing):  # what weighs nothing changes no statistics
            loss = self._loss(self._model, to_device(batch.samples, self._world.device)) * weight
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        if virtual == 0:
            self._left = [buffer.clone() for buffer in self._model.buffers()]
        return torch.cat([*(one.flatten() for one in gradients), loss.detach().to(gradients[0].dtype).view(1)])

    def _exchanged(self, mine: list[Tensor], held: list[list[Node]]) -> Mapping[Node, Tensor]:
        """The sums at the nodes that each rank holds: all of them, on every rank."""
        if not dist.is_initialized():
            return dict(zip(held[0], mine, strict=True))
        size = sum(one.numel() for one in self._parameters) + 1
        box = torch.zeros(max(map(len, held)), size, dtype=self._parameters[0].dtype, device=self._world.device)
        for row, one in zip(box, mine, strict=False):
            row.copy_(one)
        boxes = [torch.empty_like(box) for _ in held]
        dist.all_gather(boxes, box)
        return {
            node: row
            for nodes, rows in zip(held, boxes, strict=True)
            for node, row in zip(nodes, rows, strict=False)  # fewer nodes than the longest leave rows unused
        }

    def _set_gradients(self, flat: Tensor) -> None:
        parts = flat.split([one.numel() for one in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def _set_buffers(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, value in zip(self._model.buffers(), values, strict=True):
                buffer.copy_(value)
