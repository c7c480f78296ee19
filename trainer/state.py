"""The training state as bytes and back: model, optimizer and scheduler, and the generators of all ranks."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainer.files import Buffer


@dataclass(frozen=True, kw_only=True)
class State:
    """What a training run changes, apart from its cursor and the random number generators."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None = None

    @property
    def signature(self) -> str:
        """SHA-256 over names, shapes and types of all that the model saves."""
        facts = [(name, tuple(one.shape), str(one.dtype)) for name, one in self.model.state_dict().items()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The model's bare state dict in main memory: what a model file holds."""
        return {name: one.cpu() for name, one in self.model.state_dict().items()}

    def dump(self) -> Buffer:
        """All of it as bytes."""
        return dump(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            }
        )

    def load(self, content: bytes) -> None:
        """Set it from verified bytes, in place."""
        states = load(content)
        self.model.load_state_dict(states["model"])
        self.optimizer.load_state_dict(states["optimizer"])
        if self.scheduler and states["scheduler"]:
            self.scheduler.load_state_dict(states["scheduler"])


def dump(value: Any) -> Buffer:
    """Torch's file format, in memory: a write that fails then fails as a plain OSError."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getbuffer()


def load(content: bytes) -> Any:
    """Read verified bytes, without executing anything in them, into main memory."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)  # noqa: TID251  verified by the caller
