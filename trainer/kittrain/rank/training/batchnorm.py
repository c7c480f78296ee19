"""Minimum samples per rank for models with batch normalization, and a warning about batches that divide badly.

Batch normalization computes its statistics per rank. A single sample has none, and torch raises an error if it has one
value per channel. So in a short last step of an epoch, some ranks get two samples and the others get none.

Why: decision 25.
"""

from __future__ import annotations

from typing import Final

from torch import nn

from kittrain.rank.world.order import Order, rank_share

MIN_SAMPLES: Final = 2  # for statistics
BATCHNORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # and their lazy subclasses; not SyncBatchNorm


def local_batchnorms(model: nn.Module) -> list[nn.Module]:
    """The modules in training mode that compute statistics of this rank's samples only."""
    return [module for module in model.modules() if isinstance(module, BATCHNORMS) and module.training]


def min_samples_per_rank(model: nn.Module, batch: int, size: int) -> int:
    """The fewest samples that a rank takes in a step, unless it takes none: 1 or 2.

    If the batch has less than two samples per rank, the minimum stays 1 for images, which have several values per
    channel: using fewer ranks would need more memory per rank in every step.
    """
    modules = local_batchnorms(model)
    enough = batch >= MIN_SAMPLES * size
    return MIN_SAMPLES if modules and (enough or any(isinstance(one, nn.BatchNorm1d) for one in modules)) else 1


def warning(model: nn.Module, order: Order, size: int) -> str:
    """A warning if some rank computes batch statistics of a single sample; else an empty string."""
    if not local_batchnorms(model):
        return ""
    minimum = min_samples_per_rank(model, order.batch, size)
    whole = min(order.batch, order.samples)
    last = order.samples % order.batch or whole
    problems = []
    if 1 in _share_sizes(whole, size, minimum) and whole > 1:
        needed = MIN_SAMPLES * size
        problems.append(f"a batch of {whole} gives some of {size} ranks one sample per step: use {needed} or more")
    if last == 1:
        sizes = f"{order.samples} samples in batches of {order.batch}"
        problems.append(
            f"the last step of an epoch has one sample ({sizes}): use another batch size, or one sample less"
        )
    return f"BatchNorm has no statistics of a single sample, and {', and '.join(problems)}" if problems else ""


def _share_sizes(samples: int, size: int, minimum: int) -> set[int]:
    return {len(rank_share(range(samples), rank, size, minimum=minimum)) for rank in range(size)}
