"""Checks whether CUDA is initialized, and keeps imports from initializing it. Standard library only.

A process that is forked from one whose CUDA driver is initialized cannot use a GPU (CUDA C++ Programming Guide,
"CUDA Environment"; torch's notes on multiprocessing).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DRIVER: Final = "libcuda.so.1"
NOT_INITIALIZED: Final = 3  # CUDA_ERROR_NOT_INITIALIZED, returned by every call before cuInit
# With it, torch counts devices through NVML. Without it, ``torch.cuda.is_available()`` initializes the driver.
NVML_CHECK: Final = "PYTORCH_NVML_BASED_CUDA_CHECK"


def initialized(maps: Path = Path("/proc/self/maps")) -> bool:
    """Whether any library of this process has initialized the CUDA driver.

    Args:
        maps: lists the libraries that this process has loaded. The driver is not loaded just for this check.
    """
    try:
        if "/libcuda.so" not in maps.read_text():
            return False
        count = ctypes.c_int()
        answer: int = ctypes.CDLL(DRIVER).cuDeviceGetCount(ctypes.byref(count))
    except (OSError, AttributeError):  # not Linux, or no driver
        return False
    return answer != NOT_INITIALIZED


@contextmanager
def avoid_initialization() -> Iterator[None]:
    """Within this context, ``torch.cuda.is_available()`` does not initialize the driver."""
    given = os.environ.get(NVML_CHECK)
    os.environ[NVML_CHECK] = "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[NVML_CHECK]
        else:
            os.environ[NVML_CHECK] = given
