"""Exact evaluation: each sample is measured exactly once, on one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from kittrain.rank.world.batch_loading import BatchDataset, BatchRequest, Collate, Sample, no_collate
from kittrain.rank.world.distributed import World
from kittrain.rank.world.eval_mode import eval_mode
from kittrain.rank.world.order import rank_share
from kittrain.rank.world.replicas import has_sharded_modules, refuse_tensor_parallelism, reshard
from kittrain.rank.world.transfer import to_device

Measure = Callable[[nn.Module, Any], Tensor]
FILLER: Final = BatchRequest(0, 0, range(1))  # for a rank without samples left, if the forward pass is collective


@torch.no_grad()
def evaluate(
    world: World,
    model: nn.Module,
    dataset: Dataset[Sample],
    measure: Measure,
    *,
    batch: int = 256,
    collate: Collate | None = None,
) -> float:
    """The mean of a measure over a data set, equal on all ranks and independent of their number.

    Collective. The model gets rank 0's buffers, and is in evaluation mode meanwhile. With ``fully_shard``, each forward
    pass is collective: a rank that has no samples left then repeats the first sample, which is not counted. Random
    numbers of the data set are the same in each evaluation.

    Args:
        world: its ranks divide the samples among them, without padding.
        model: wrapped in DDP or not.
        dataset: map-style, the same on all ranks.
        measure: from the model and a batch of n samples, a value for each: shape (n,), any number type or bool.
        batch: samples measured at once on a rank.
        collate: makes a batch of a list of samples; None is torch's default.

    Raises:
        ValueError: there are no samples, or the model is divided by tensor parallelism.
    """
    module = model.module if isinstance(model, DistributedDataParallel) else model
    refuse_tensor_parallelism(module)
    samples = len(dataset)  # type: ignore[arg-type]  # torch's Dataset has no __len__
    if samples < 1:
        raise ValueError("the data set to evaluate has no samples")
    mine = in_batches(rank_share(range(samples), world.rank, world.size), batch)
    rounds = len(in_batches(rank_share(range(samples), 0, world.size), batch))  # rank 0's share is never smaller
    fillers = [FILLER] * (rounds - len(mine)) if has_sharded_modules(module) else []
    loader = _loader(BatchDataset(dataset, collate=collate), [*mine, *fillers])
    total = torch.zeros(2, dtype=torch.float64, device=world.device)  # sum of the values, count of them
    world.broadcast_buffers(module)
    with eval_mode([module]):
        for number, loaded in enumerate(loader):
            values = measure(module, to_device(loaded, world.device))
            if number < len(mine):
                total += torch.stack([values.double().sum(), total.new_tensor(values.numel())])
    reshard(module)
    value, count = world.sum(total).tolist()
    assert count == samples, f"{count:.0f} values were measured for {samples} samples"
    return float(value / count)


def _loader(dataset: BatchDataset, requests: list[BatchRequest]) -> DataLoader[Any]:
    """A loader that draws nothing from the global generator."""
    return DataLoader(
        dataset,
        batch_size=None,  # the data set returns whole batches
        sampler=requests,
        collate_fn=no_collate,
        generator=torch.Generator(),
    )


def in_batches(ids: Sequence[int], batch: int) -> list[BatchRequest]:
    """Split a rank's samples into batches."""
    return [BatchRequest(0, ids[start], ids[start : start + batch]) for start in range(0, len(ids), batch)]
