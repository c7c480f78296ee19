"""Tests for one machine with one GPU and the CUDA build of torch that is there: ``make test-gpu``.

They are no part of ``make test``: without ``KIT_GPU_TESTS=1`` none of them is collected, and with it each of them has
to run. They need nothing but torch and pytest, with the plugins that pyproject.toml names.
"""

from __future__ import annotations

import os

import pytest
import torch

from tests.gpu.jobs import GPUJobs

ASKED = os.environ.get("KIT_GPU_TESTS") == "1"
collect_ignore_glob = [] if ASKED else ["test_*.py"]


def pytest_configure() -> None:
    if ASKED and not torch.cuda.is_available():
        raise pytest.UsageError(f"no GPU for torch {torch.__version__} (CUDA {torch.version.cuda}) on this machine")


@pytest.fixture
def job(tmp_path):
    """``job(*arguments, ranks=1, **env)``: a job of one node on the machine's GPU, whose node has started."""
    with GPUJobs(tmp_path) as jobs:
        yield jobs.start
