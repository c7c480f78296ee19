"""Virtual ranks: the same bits from any number of ranks, and across every restart and resize.

A step's samples are always divided among V virtual ranks. Each real rank computes a contiguous range of them, one
after the other. The V gradients are added along a fixed binary tree over the virtual ranks: floating-point addition is
not associative, so the order of the sum must not depend on the number of ranks.

A step costs V backward passes in all, instead of one per real rank, and an all-gather of up to 2 log2 V gradients per
rank after the backward pass, instead of DDP's all-reduce during it.

Why: decision 14.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kittrain.rank.training import batchnorm
from kittrain.rank.training.gradients import Loss, MessageSource, Parts, seen_as
from kittrain.rank.training.step_sync import PendingMean, all_reduce_message
from kittrain.rank.world import rng
from kittrain.rank.world.data import Batch, Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.eval_mode import eval_mode
from kittrain.rank.world.order import Cursor, rank_share
from kittrain.rank.world.seeds import derive_seed
from kittrain.rank.world.transfer import to_device
from kittrain.system.heartbeat import Phase

TreeNode = tuple[int, int]  # virtual ranks from the first number up to, but without, the second


def children(node: TreeNode) -> tuple[TreeNode, TreeNode]:
    """The two children of an inner node."""
    low, high = node
    middle = (low + high + 1) // 2
    return (low, middle), (middle, high)


def cover(held: range, node: TreeNode) -> list[TreeNode]:
    """The fewest nodes at or below a node that together cover its virtual ranks in ``held``, in order."""
    low, high = node
    if held.start <= low and high <= held.stop:
        return [node] if low < high else []
    if high <= held.start or held.stop <= low:
        return []
    return [one for child in children(node) for one in cover(held, child)]


def tree_sum(node: TreeNode, sums: Mapping[TreeNode, Tensor]) -> Tensor:
    """The sum at a node, from the sums at nodes at or below it, added in the tree's order."""
    if node in sums:
        return sums[node]
    left, right = children(node)
    return tree_sum(left, sums) + tree_sum(right, sums)


class VirtualRanks:
    """Gradients with the same bits for any number of ranks. Implements ``gradients.Gradients``.

    Every virtual rank has its own random seed for each step. Buffers, such as the running statistics of a BatchNorm,
    are those of virtual rank 0, as they are rank 0's under DDP. Equal bits also need the same hardware, version of
    torch and number of threads on all ranks, and deterministic operations, which are enabled for the whole process.

    Args:
        world: all ranks.
        model: its parameters and buffers become rank 0's.
        loss: from the model and a batch, the mean over the batch's samples.
        data: the training data.
        count: number of virtual ranks; real ranks beyond it are idle.

    Raises:
        ValueError: the parameters have several dtypes.
    """

    def __init__(self, world: World, model: nn.Module, loss: Loss, data: Data, count: int) -> None:
        self._world = world
        self._model = model
        self._loss = loss
        self._data = data
        self._count = count
        self._batchnorms = batchnorm.local_batchnorms(model)
        self._minimum = batchnorm.min_samples_per_rank(model, data.order.batch, count)
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        if len({one.dtype for one in self._parameters}) > 1:
            raise ValueError("virtual ranks add all gradients as one tensor: the parameters must have one dtype")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch's notes on reproducibility ask for it
        torch.use_deterministic_algorithms(mode=True)
        self._ranges = [cast("range", rank_share(range(count), rank, world.size)) for rank in range(world.size)]
        self._buffers_before: list[Tensor] = []  # at the start of a step
        self._buffers_after: list[Tensor] = []  # as virtual rank 0 leaves them
        if dist.is_initialized():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.detach(), src=0)

    def batches(self, cursor: Cursor, epochs: int) -> Iterator[Parts]:
        """See the protocol: a batch for each virtual rank of this rank."""
        worlds = [seen_as(self._world, virtual, self._count) for virtual in self._mine]
        streams = [self._data.batches(cursor, epochs, world, minimum=self._minimum) for world in worlds]
        if not streams:
            return ([] for _ in self._data.order.spans(cursor, epochs))
        return map(list, zip(*streams, strict=True))

    def backward(self, parts: Parts, message: MessageSource) -> PendingMean:
        """See the protocol."""
        self._buffers_before = [buffer.clone() for buffer in self._model.buffers()]
        self._buffers_after = self._buffers_before
        root, batches = (0, self._count), iter(parts)
        held = [cover(part, root) for part in self._ranges]
        mine = [self._partial_sum(node, batches) for node in held[self._world.rank]]
        self._world.heartbeat.beat(Phase.BACKWARD)  # from here on it waits for other ranks
        self._set_buffers(self._buffers_after)
        self._world.broadcast_buffers(self._model)
        whole = tree_sum(root, self._all_gather(mine, held))
        self._set_gradients(whole[:-1])
        loss = whole[-1] if self._world.is_main else whole.new_zeros(())  # a sum with zeros is exact in any order
        return all_reduce_message(loss, message())

    @property
    def _mine(self) -> range:
        return self._ranges[self._world.rank]

    def _partial_sum(self, node: TreeNode, batches: Iterator[Batch]) -> Tensor:
        """The sum at a node whose virtual ranks are all this rank's; their batches come in order."""
        low, high = node
        if high - low == 1:
            return self._gradient(low, next(batches))
        left, right = children(node)
        return self._partial_sum(left, batches).add_(self._partial_sum(right, batches))

    def _gradient(self, virtual: int, batch: Batch) -> Tensor:
        """A virtual rank's part of the global batch's gradient, flattened, followed by its part of the loss."""
        step = self._data.order.step(self._data.order.after(batch.span))
        rng.seed_all(derive_seed("virtual rank", self._data.order.seed, step, virtual))
        self._set_buffers(self._buffers_before)
        weight = batch.weight / self._count
        with eval_mode([] if batch.ids else self._batchnorms):  # a batch of weight 0 must not change statistics
            loss = self._loss(self._model, to_device(batch.take(), self._world.device)) * weight
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        if virtual == 0:
            self._buffers_after = [buffer.clone() for buffer in self._model.buffers()]
        return torch.cat([*(one.flatten() for one in gradients), loss.detach().to(gradients[0].dtype).view(1)])

    def _all_gather(self, mine: list[Tensor], held: list[list[TreeNode]]) -> Mapping[TreeNode, Tensor]:
        """The sums at all ranks' nodes, on every rank."""
        if not dist.is_initialized():
            return dict(zip(held[0], mine, strict=True))
        size = sum(one.numel() for one in self._parameters) + 1
        sent = torch.zeros(max(map(len, held)), size, dtype=self._parameters[0].dtype, device=self._world.device)
        for row, one in zip(sent, mine, strict=False):
            row.copy_(one)
        received = [torch.empty_like(sent) for _ in held]
        dist.all_gather(received, sent)
        return {
            node: row
            for nodes, rows in zip(held, received, strict=True)
            for node, row in zip(nodes, rows, strict=False)  # ranks with fewer nodes leave rows unused
        }

    def _set_gradients(self, flat: Tensor) -> None:
        parts = flat.split([one.numel() for one in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def _set_buffers(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, value in zip(self._model.buffers(), values, strict=True):
                buffer.copy_(value)
