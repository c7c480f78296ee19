"""What the warm process imports must survive a fork: it starts no thread and asks no driver about devices."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from trainer.node import zygote
from trainer.node.zygote import PRELOADED
from trainer.system import cuda

LOOK = """
import importlib, os, sys, torch
def refuse(*_, **__):
    raise AssertionError("a driver was asked")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = refuse
if hasattr(torch._C, "_cuda_getDeviceCount"):
    torch._C._cuda_getDeviceCount = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="ranks are warm on Linux only")
def test_nothing_that_is_preloaded_starts_a_thread_or_touches_a_device() -> None:
    command = [sys.executable, "-P", "-c", LOOK, *PRELOADED]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # OpenBLAS starts its threads early, and again after a fork
    assert subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout == "1\n"


def test_ranks_are_not_forked_from_a_process_that_has_initialized_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "PRELOADED", ())
    monkeypatch.setattr(cuda, "initialized", lambda: True)
    with closing(zygote.Zygote()) as warm, pytest.raises(zygote.ZygoteLost, match="initialized CUDA"):
        warm.await_warmth()
