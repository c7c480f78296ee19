"""The real JAX: its processes find each other from the environment that a rank has."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import log, run

pytestmark = MARKS


def test_processes_find_each_other_without_arguments(tmp_path: Path) -> None:
    assert run("jax_sum.py", tmp_path) == [0, 0], log(tmp_path)
    assert "process 0 of 2: sum 3" in log(tmp_path)
    assert "process 1 of 2: sum 3" in log(tmp_path, 1)
