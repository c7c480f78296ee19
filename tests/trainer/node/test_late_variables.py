"""A script is told of variables that it sets for torch once torch is imported."""

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
from kittrain.node.late_variables import watch
watch()
"""
TORCH = "sys.modules['torch'] = types.ModuleType('torch')"


def told(tmp_path: Path, script: str, torch: str = TORCH) -> list[str]:
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
def test_it_is_told_where_and_what_to_do(tmp_path: Path, line: str) -> None:
    (one,) = told(tmp_path, f"for _ in range(2):\n    {line}\n")
    assert one.startswith("warning: train.py:7 sets ")
    assert "kitctl submit --env " in one
    assert "KIT_WARM_WORKERS=0" in one


@pytest.mark.parametrize(
    "line",
    ["os.environ['OMP_NUM_THREADS'] = '1'", "os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "del os.environ['HOME']"],
)
def test_what_changes_nothing_or_still_counts_is_not_told(tmp_path: Path, line: str) -> None:
    assert not told(tmp_path, line)


def test_a_rank_that_imports_torch_later_is_told_nothing(tmp_path: Path) -> None:
    assert not told(tmp_path, "os.environ['OMP_NUM_THREADS'] = '4'", torch="")


def test_a_package_that_sets_one_is_left_alone(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "other.py").write_text("import os; os.environ['OMP_NUM_THREADS'] = '4'")
    assert not told(tmp_path, f"sys.path.append({str(packages)!r}); import other")


@pytest.mark.slow
def test_a_warm_rank_is_told_and_a_cold_one_is_not(tmp_path: Path) -> None:
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
