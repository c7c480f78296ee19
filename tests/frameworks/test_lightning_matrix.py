"""A Lightning Trainer interrupted at each of its hooks ends as if it had not been, to the bit, on three ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.frameworks import matrix
from tests.frameworks.marks import MARKS
from tests.frameworks.matrix import Interruption, Table, drains, kills

pytestmark = MARKS

# 6 batches an epoch, 12 in all; a validation and a checkpoint every second step
STEPS: Final = {"arguments": {"max_epochs": 2, "val_check_interval": 2}, "every": 2}
# checkpoints at each epoch's last step only; schedulers that step with epochs
EPOCHS: Final = {"arguments": {"max_epochs": 3}, "every": 6, "plateau": True}
# 5 batches an epoch are 3 steps, of which the last has one batch; every second epoch is validated
ACCUMULATED: Final = {
    "arguments": {"max_epochs": 4, "accumulate_grad_batches": 2, "check_val_every_n_epoch": 2},
    "every": 2,
    "samples": 30,
    "interval": "epoch",
}
ONE_BATCH: Final = {"arguments": {"max_epochs": 4}, "every": 1, "samples": 6}
# ends within an epoch: by its number of steps, and early
SHORT: Final = {"arguments": {"max_steps": 9, "max_epochs": -1, "val_check_interval": 2}, "every": 4}
EARLY: Final = {"arguments": {"max_epochs": 6}, "every": 5, "patience": 1, "rate": 0.5}
FOLDS: Final = {**STEPS, "parts": 2}
WORKERS: Final = {**STEPS, "workers": 1}

TABLE: Final[Table] = {
    "steps": (
        STEPS,
        [
            *kills("on_train_start", 0),
            *kills("on_train_epoch_start", 0, 6),
            *kills("on_train_batch_start", 0, 2, 5, 6),
            *kills("on_before_backward", 3),
            *kills("on_after_backward", 3),
            *kills("on_before_optimizer_step", 2),
            *kills("on_before_zero_grad", 7),
            *kills("on_train_batch_end", 1, 2, 6, 12),
            *kills("on_validation_start", 2, 6),
            *kills("on_validation_batch_end", 4),
            *kills("on_validation_end", 2, 6, 8, 12),
            *kills("on_train_epoch_end", 6, 12),
            *kills("on_train_end", 12),
            *kills("after", 12),
            *drains("on_train_batch_end", 1, 2, 3, 4, 5, 6, 9, 10),
            *drains("on_validation_end", 4, 6),
        ],
    ),
    "epochs": (
        EPOCHS,
        [
            *kills("on_train_batch_end", 8, 12),
            *kills("on_validation_end", 6, 12),
            *kills("on_train_epoch_end", 6),
            *kills("on_train_epoch_start", 6),
            *kills("on_train_batch_start", 6),
            *drains("on_train_batch_end", 2, 4, 5, 6, 11),
        ],
    ),
    "accumulated": (
        ACCUMULATED,
        [
            *kills("on_train_batch_end", 2, 3, 5, 7),
            *kills("on_validation_end", 6),
            *drains("on_train_batch_end", 1, 2, 3, 6),
        ],
    ),
    "one batch": (ONE_BATCH, [*kills("on_train_batch_start", 1, 2), *drains("on_train_batch_end", 1)]),
    "short": (SHORT, [*kills("on_train_batch_end", 5, 8), *kills("after", 9), *drains("on_train_batch_end", 5)]),
    "early": (EARLY, [*kills("on_train_batch_end", 7), *kills("after", 18), *drains("on_train_batch_end", 8)]),
    "workers": (WORKERS, [*kills("on_train_batch_end", 3, 8), *drains("on_train_batch_end", 2, 5)]),
    "folds": (
        FOLDS,
        [
            *kills("on_train_batch_end", 4),
            *kills("after", 12),
            *kills("on_train_start", 0, part=1),
            *kills("on_train_batch_end", 1, 6, part=1),
            *kills("after", 12, part=1),
            *drains("on_train_batch_end", 3, part=1),
        ],
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return matrix.results("lit_matrix.py", TABLE, tmp_path_factory.mktemp("lightning"))


@pytest.mark.parametrize(("name", "interruption"), matrix.rows(TABLE), ids=str)
def test_interrupted_is_bitwise_the_same(found: list[dict[str, Any]], name: str, interruption: Interruption) -> None:
    matrix.check(found, name, interruption)


def test_each_fold_trains_a_model_of_its_own(found: list[dict[str, Any]]) -> None:
    first, second = found[0][matrix.UNDISTURBED + "folds"]["facts"]
    assert first["weights"] != second["weights"]
    assert first["counts"] == second["counts"]


def test_a_job_whose_rank_is_killed_ends_the_same(found: list[dict[str, Any]], tmp_path: Path) -> None:
    interruption = Interruption(event="on_train_batch_end", step=8)
    logs = matrix.check_job("lit_matrix.py", EPOCHS, interruption, found[0][matrix.UNDISTURBED + "epochs"], tmp_path)
    assert "resuming after step 6 with 3 ranks" in logs
