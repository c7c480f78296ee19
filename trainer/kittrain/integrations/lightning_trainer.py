"""What the callback for Lightning reads and sets of a Trainer, besides its position: limits, metrics, and a hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch import Callback

Metrics = dict[str, dict[str, float]]  # what was logged, by the Trainer's names for it


class Between(Callback):
    """Called before all other callbacks where a batch or an epoch begins: all of the last one is done.

    Args:
        at_batch: what to call before a batch.
        at_epoch: what to call before an epoch.
    """

    def __init__(self, at_batch: Callable[[Any], None], at_epoch: Callable[[Any], None]) -> None:
        self._at_batch = at_batch
        self._at_epoch = at_epoch

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """The last batch is done, with its validation."""
        self._at_batch(trainer)

    def on_train_epoch_start(self, trainer: Any, _module: Any) -> None:
        """The last epoch is done."""
        self._at_epoch(trainer)


def total_steps(trainer: Any, batches: float) -> int | None:
    """Optimizer steps of the whole run, if known."""
    if trainer.max_steps and trainer.max_steps > 0:
        return int(trainer.max_steps)
    if not trainer.max_epochs or trainer.max_epochs < 0 or batches == float("inf"):
        return None
    return int(-(-batches // trainer.accumulate_grad_batches) * trainer.max_epochs)


def limit(trainer: Any) -> str:
    """The limits of a training, for the marker of its end: with larger ones it continues."""
    return f"{trainer.max_epochs} epochs, {trainer.max_steps} steps"


def logged(trainer: Any) -> Metrics:
    """What has been logged, by the Trainer's names for it."""
    names = ("callback_metrics", "logged_metrics")
    return {name: {key: float(value) for key, value in getattr(trainer, name).items()} for name in names}


def log_again(trainer: Any, metrics: Metrics) -> None:
    """Set what was logged last: callbacks and schedulers read it, and so does the script."""
    for name, values in metrics.items():
        getattr(trainer, name).update({key: torch.tensor(value) for key, value in values.items()})


def size_of(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor; 0 if there is none."""
    while isinstance(batch, Mapping | list | tuple) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return len(batch) if getattr(batch, "ndim", 0) else 0
