"""Configures Accelerate, and the Hugging Face Trainer, for CPUs by their environment variables."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

import torch

VARIABLES: Final = {
    "ACCELERATE_USE_CPU": "true",  # else ranks on CPUs form no process group
    "ACCELERATE_TORCH_DEVICE": "cpu",  # else local rank 1 has cpu:1, to which torch.load cannot map a checkpoint
}


def configure_accelerate(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables on a machine without accelerators, unless the user has. Call it before Accelerate starts."""
    if not torch.accelerator.is_available():
        for name, value in VARIABLES.items():
            environ.setdefault(name, value)
