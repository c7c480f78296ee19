"""Exact evaluation: each sample is measured once, on one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

from trainer.world.data import Sample, to_device
from trainer.world.distributed import World
from trainer.world.order import portion

Measure = Callable[[nn.Module, Any], Tensor]


@torch.no_grad()
def evaluate(
    world: World,
    model: nn.Module,
    dataset: Dataset[Sample],
    measure: Measure,
    *,
    batch: int = 256,
    collate: Callable[[list[Sample]], Any] | None = None,
) -> float:
    """The mean of a measure over a data set, equal on all ranks and independent of their number.

    Collective. The model is put into evaluation mode, with rank 0's buffers, and left as it was.

    Args:
        world: its ranks share the samples out, without padding.
        model: wrapped in DDP or not.
        dataset: map-style, the same on all ranks.
        measure: from the model and a batch of n samples, a value for each: shape (n,), any number type or bool.
        batch: samples measured at once on a rank.
        collate: makes a batch of a list of samples; None takes torch's default.
    """
    module = model.module if isinstance(model, DistributedDataParallel) else model
    samples = len(dataset)  # type: ignore[arg-type]  # torch's Dataset does not promise a length
    mine = Subset(dataset, portion(range(samples), world.rank, world.size))
    loader = DataLoader(mine, batch_size=batch, collate_fn=collate, generator=torch.Generator())
    total = torch.zeros(2, dtype=torch.float64, device=world.device)  # sum of the values, count of them
    was_training = module.training
    module.eval()
    world.equalize_buffers(module)
    for part in loader:
        values = measure(module, to_device(part, world.device))
        total += torch.stack([values.double().sum(), total.new_tensor(values.numel())])
    module.train(was_training)
    value, count = world.sum(total).tolist()
    assert count == samples, f"{count:.0f} values were measured for {samples} samples"
    return float(value / count)
