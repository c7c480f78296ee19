"""Whether CUDA is initialized, tested with a fake driver."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from kittrain.system import cuda


@pytest.mark.parametrize(("answer", "initialized"), [(cuda.NOT_INITIALIZED, False), (0, True), (100, True)])
def test_the_driver_reports_whether_it_is_initialized(
    answer: int, *, initialized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Driver:
        def __init__(self, name: str) -> None:
            assert name == cuda.DRIVER

        def cuDeviceGetCount(self, _count: Any) -> int:  # noqa: N802
            return answer

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert cuda.initialized(maps(tmp_path, "/usr/lib/libcuda.so.580.1")) is initialized


def test_the_check_does_not_load_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert not cuda.initialized(maps(tmp_path, "/usr/lib/libcudart.so.13"))
    assert not cuda.initialized(tmp_path / "none")


def maps(folder: Path, library: str) -> Path:
    path = folder / "maps"
    path.write_text(f"7f00-7f01 r-xp 00000000 fe:01 12345  {library}\n")
    return path


@pytest.mark.parametrize("given", [None, "0"])
def test_the_variable_is_restored(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cuda.NVML_CHECK, raising=False)
    if given is not None:
        monkeypatch.setenv(cuda.NVML_CHECK, given)
    with cuda.avoid_initialization():
        assert os.environ[cuda.NVML_CHECK] == "1"
    assert os.environ.get(cuda.NVML_CHECK) == given
