"""Tests for a machine with one GPU and a CUDA build of torch: ``make test-gpu``.

They are not part of ``make test``: without ``KIT_GPU_TESTS=1`` none is collected, and with it none may be skipped. They
need only torch, and pytest with the plugins in pyproject.toml.
"""

from __future__ import annotations

import os

import pytest
import torch

from tests.gpu.jobs import GPUJobs

ENABLED = os.environ.get("KIT_GPU_TESTS") == "1"
collect_ignore_glob = [] if ENABLED else ["test_*.py"]


def pytest_configure() -> None:
    if ENABLED and not torch.cuda.is_available():
        raise pytest.UsageError(f"no GPU for torch {torch.__version__} (CUDA {torch.version.cuda}) on this machine")


@pytest.fixture
def job(tmp_path):
    """``job(*arguments, ranks=1, **env)``: start a job of one node on the machine's GPU."""
    with GPUJobs(tmp_path) as jobs:
        yield jobs.start
