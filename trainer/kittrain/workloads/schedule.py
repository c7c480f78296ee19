"""The learning rate of the workloads over their steps."""

from __future__ import annotations

from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_and_decay(optimizer: Optimizer, *, steps: int) -> LambdaLR:
    """Up to the optimizer's rate for a tenth of the steps, then down to 0.

    Snapshots hold the number of steps taken, not of all: a run that is resumed with more epochs decays until their end.
    """
    return LambdaLR(optimizer, partial(factor, steps=steps))


def factor(step: int, *, steps: int) -> float:
    """Factor of the learning rate after this many steps."""
    return max(0.0, min((step + 1) / (0.1 * steps), 1 - step / steps))
