"""A script is warned about environment variables that it sets after torch, which reads them, was imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.nodes import Nodes

PRELUDE = """
import os, sys, types
{torch}
from kittrain.agent.hooks.launching.late_variables import watch
watch()
"""
TORCH = "sys.modules['torch'] = types.ModuleType('torch')"


def warnings_of(tmp_path: Path, script: str, torch: str = TORCH) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(PRELUDE.format(torch=torch) + script)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['OMP_NUM_THREADS'] = '4'",
        "os.environ.update(OMP_NUM_THREADS='4', OTHER='1')",
        "os.environ.setdefault('MKL_NUM_THREADS', '4')",
        "os.putenv('TORCH_LOGS', '4')",
    ],
)
def test_the_warning_has_the_line_and_the_fix(tmp_path: Path, line: str) -> None:
    (one,) = warnings_of(tmp_path, f"for _ in range(2):\n    {line}\n")
    assert one.startswith("warning: train.py:7 sets ")
    assert "kitctl submit --env " in one
    assert "KIT_WARM_WORKERS=0" in one


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        "del os.environ['HOME']",
        "old = os.environ.copy(); os.environ.clear(); os.environ.update(old)",  # as accelerate's clear_environment()
    ],
)
def test_no_warning_if_the_variable_is_unchanged_or_still_effective(tmp_path: Path, line: str) -> None:
    assert not warnings_of(tmp_path, line)


def test_no_warning_if_torch_is_imported_later(tmp_path: Path) -> None:
    assert not warnings_of(tmp_path, "os.environ['OMP_NUM_THREADS'] = '4'", torch="")


def test_no_warning_for_a_package_that_sets_one(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "other.py").write_text("import os; os.environ['OMP_NUM_THREADS'] = '4'")
    assert not warnings_of(tmp_path, f"sys.path.append({str(packages)!r}); import other")


@pytest.mark.wide
@pytest.mark.slow
def test_a_warm_rank_is_warned_and_a_cold_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '3'\nimport torch\n")
    found = []
    for warm in ("1", "0"):
        folder = tmp_path / warm
        folder.mkdir()
        with Nodes(folder, str(tmp_path / "train.py"), nodes="1", KIT_WARM_WORKERS=warm) as nodes:
            nodes.start(0)
            assert nodes.wait(0) == 0
            found.append("train.py:2 sets OMP_NUM_THREADS, which has no effect" in nodes.output(0))
    assert found == [True, False]
