"""Batch normalization where the batch is cut: who takes how many samples, and what a person should know at the start.

Its statistics are those of a rank's own part. Of one sample they say nothing, and torch refuses them where the sample
has one value a channel. So where the last step of an epoch is short, some ranks have two samples, and others none.
"""

from __future__ import annotations

from typing import Final

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from kittrain.world.order import Order, portion

ENOUGH: Final = 2  # samples that statistics can be made of


def normalizing(model: nn.Module) -> list[nn.Module]:
    """The modules that compute statistics of a rank's own samples, as they are set now."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm) and module.training
    ]


def least(model: nn.Module, batch: int, size: int) -> int:
    """How many samples a rank takes at least, if it takes any: 1 or 2.

    One is left as it is where it was asked for, by a batch of less than two samples a rank, and images have more than
    one value a channel: sharing them out among fewer ranks would take more memory a rank in every step.
    """
    modules = normalizing(model)
    roomy = batch >= ENOUGH * size
    return ENOUGH if modules and (roomy or any(isinstance(one, nn.BatchNorm1d) for one in modules)) else 1


def warning(model: nn.Module, order: Order, size: int) -> str:
    """What a person should know of how the batch divides among ranks; empty where all is well."""
    if not normalizing(model):
        return ""
    few = least(model, order.batch, size)
    whole = min(order.batch, order.samples)
    last = order.samples % order.batch or whole
    told = []
    if 1 in _shares(whole, size, few) and whole > 1:
        told.append(f"a batch of {whole} leaves some of {size} ranks one sample a step: take {ENOUGH * size} or more")
    if last == 1:
        cut = f"{order.samples} samples in batches of {order.batch}"
        told.append(f"the last step of an epoch has one sample ({cut}): take another batch size, or one sample less")
    return f"BatchNorm has no statistics of a single sample, and {', and '.join(told)}" if told else ""


def _shares(samples: int, size: int, few: int) -> set[int]:
    return {len(portion(range(samples), rank, size, least=few)) for rank in range(size)}
