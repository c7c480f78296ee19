"""Exact evaluation: each sample is measured once, on one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from kittrain.world.distributed import World
from kittrain.world.loading import Collate, Loading, Part, Sample, as_it_is
from kittrain.world.modes import evaluating
from kittrain.world.order import portion
from kittrain.world.replicas import sharded
from kittrain.world.transfer import to_device

Measure = Callable[[nn.Module, Any], Tensor]
FIRST: Final = Part(0, 0, range(1))  # what a rank without samples of its own looks at, where all have to take part


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

    Collective. The model is put into evaluation mode, with rank 0's buffers, and left as it was. Ranks of a model that
    ``fully_shard`` has cut need each other in each forward pass: one that has no samples left measures the first one
    meanwhile, which does not count. What the data set draws is the same each time.

    Args:
        world: its ranks share the samples out, without padding.
        model: wrapped in DDP or not.
        dataset: map-style, the same on all ranks.
        measure: from the model and a batch of n samples, a value for each: shape (n,), any number type or bool.
        batch: samples measured at once on a rank.
        collate: makes a batch of a list of samples; None takes torch's default.

    Raises:
        ValueError: there are no samples.
    """
    module = model.module if isinstance(model, DistributedDataParallel) else model
    samples = len(dataset)  # type: ignore[arg-type]  # torch's Dataset does not promise a length
    if samples < 1:
        raise ValueError("there are no samples to evaluate with: the mean of nothing is no number")
    mine = parts(portion(range(samples), world.rank, world.size), batch)
    rounds = len(parts(portion(range(samples), 0, world.size), batch))  # rank 0's share is never smaller
    shown = [FIRST] * (rounds - len(mine)) if sharded(module) else []
    loader = DataLoader(
        Loading(dataset, collate=collate),
        batch_size=None,  # it is asked for whole batches
        sampler=[*mine, *shown],
        collate_fn=as_it_is,
        generator=torch.Generator(),  # else it would draw from the global one
    )
    total = torch.zeros(2, dtype=torch.float64, device=world.device)  # sum of the values, count of them
    world.equalize_buffers(module)
    with evaluating([module]):
        for number, loaded in enumerate(loader):
            values = measure(module, to_device(loaded, world.device))
            if number < len(mine):
                total += torch.stack([values.double().sum(), total.new_tensor(values.numel())])
    value, count = world.sum(total).tolist()
    assert count == samples, f"{count:.0f} values were measured for {samples} samples"
    return float(value / count)


def parts(ids: Sequence[int], batch: int) -> list[Part]:
    """A rank's samples in batches."""
    return [Part(0, ids[start], ids[start : start + batch]) for start in range(0, len(ids), batch)]
