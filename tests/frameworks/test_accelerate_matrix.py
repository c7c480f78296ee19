"""A loop with Accelerate in a ``Run``, interrupted anywhere, ends as if it had not been, to the bit, on three ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.frameworks import matrix
from tests.frameworks.marks import MARKS
from tests.frameworks.matrix import Interruption, Table, drains, kills

pytestmark = MARKS

STEPS: Final = {"every": 2, "accumulate": 1, "samples": 36}  # 6 steps an epoch, 12 in all
ACCUMULATED: Final = {"every": 1, "accumulate": 2, "samples": 30}  # 5 batches an epoch are 3 steps

TABLE: Final[Table] = {
    "steps": (
        STEPS,
        [
            *kills("batch", 0, 3, 6),
            *kills("backward", 2),
            *kills("step", 5, 11),
            *kills("stepped", 1, 6, 8, 12),
            *kills("epoch end", 6, 12),
            *kills("after", 12),
            *drains("stepped", 1, 4, 5, 6, 10),
        ],
    ),
    "accumulated": (ACCUMULATED, [*kills("backward", 1, 2, 4), *kills("stepped", 3), *drains("stepped", 1, 2, 3)]),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return matrix.results("accelerate_matrix.py", TABLE, tmp_path_factory.mktemp("accelerate"))


@pytest.mark.parametrize(("name", "interruption"), matrix.rows(TABLE), ids=str)
def test_interrupted_is_bitwise_the_same(found: list[dict[str, Any]], name: str, interruption: Interruption) -> None:
    matrix.check(found, name, interruption)


def test_a_job_whose_rank_is_killed_ends_the_same(found: list[dict[str, Any]], tmp_path: Path) -> None:
    whole = found[0][matrix.UNDISTURBED + "steps"]
    logs = matrix.check_job("accelerate_matrix.py", STEPS, Interruption(event="stepped", step=9), whole, tmp_path)
    assert "resuming after step" in logs
