"""A Hugging Face Trainer interrupted at each of its hooks ends as if it had not been, to the bit, on three ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.frameworks import matrix
from tests.frameworks.marks import MARKS
from tests.frameworks.matrix import Interruption, Table, drains, kills

pytestmark = MARKS

# 6 steps an epoch, 12 in all
STEPS: Final = {
    "arguments": {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "load_best_model_at_end": True,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 1,
    }
}
# 5 batches an epoch are 3 steps, of which the last has one batch
EPOCHS: Final = {
    "arguments": {
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "gradient_accumulation_steps": 2,
        "lr_scheduler_type": "reduce_lr_on_plateau",
    },
    "samples": 30,
}
# an evaluation every second step, a checkpoint every fourth: the best one is among those
SPARSE: Final = {
    "arguments": STEPS["arguments"] | {"save_steps": 4, "save_total_limit": 2, "eval_on_start": True},
    "patience": 4,
}
BEST: Final = {"arguments": STEPS["arguments"] | {"save_strategy": "best"}}
MIXED: Final = {"arguments": {"eval_strategy": "epoch", "save_strategy": "steps", "save_steps": 3}}
# ends within an epoch: by its number of steps, and early
SHORT: Final = {"arguments": STEPS["arguments"] | {"max_steps": 9}}
EARLY: Final = {"arguments": STEPS["arguments"] | {"learning_rate": 2.0}, "patience": 1}
FOLDS: Final = {**STEPS, "parts": 2}

TABLE: Final[Table] = {
    "steps": (
        STEPS,
        [
            *kills("on_train_begin", 0),
            *kills("on_epoch_begin", 0, 6),
            *kills("on_step_begin", 0, 1, 2, 6, 7),
            *kills("on_pre_optimizer_step", 2, 5),
            *kills("on_optimizer_step", 2, 5),
            *kills("on_step_end", 1, 2, 6, 12),
            *kills("on_log", 2, 6, 12),
            *kills("on_prediction_step", 2, 6, 12),
            *kills("on_evaluate", 2, 6, 12),
            *kills("on_save", 2, 6, 12),
            *kills("on_epoch_end", 6, 12),
            *kills("on_train_end", 12),
            *kills("after", 12),
            *drains("on_step_end", 1, 2, 3, 5, 6, 10),
            *drains("on_evaluate", 6),
            *drains("on_save", 4),
        ],
    ),
    "epochs": (
        EPOCHS,
        [
            *kills("on_substep_end", 1, 4),
            *kills("on_evaluate", 3, 6),
            *kills("on_save", 3, 6),
            *kills("on_epoch_end", 3),
            *kills("on_epoch_begin", 3),
            *drains("on_step_end", 1, 2, 3, 4),
            *drains("on_evaluate", 3),
        ],
    ),
    "sparse": (SPARSE, [*kills("on_evaluate", 6, 8), *drains("on_step_end", 1, 3, 5, 7, 9)]),
    "best": (BEST, [*kills("on_save", 2, 4), *kills("after", 12), *drains("on_step_end", 1, 4, 5, 7)]),
    "mixed": (MIXED, [*kills("on_evaluate", 6), *kills("on_step_begin", 6), *drains("on_step_end", 2, 5)]),
    "short": (SHORT, [*kills("on_train_end", 9), *kills("after", 9), *drains("on_step_end", 7)]),
    "early": (EARLY, [*kills("on_evaluate", 4), *kills("on_train_end", 6), *kills("after", 6), *drains("on_save", 2)]),
    "folds": (
        FOLDS,
        [
            *kills("on_step_end", 4),
            *kills("after", 12),
            *kills("on_train_begin", 0, part=1),
            *kills("on_step_end", 1, 6, part=1),
            *kills("after", 12, part=1),
            *drains("on_step_end", 3, part=1),
        ],
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return matrix.results("hf_matrix.py", TABLE, tmp_path_factory.mktemp("huggingface"))


@pytest.mark.parametrize(("name", "interruption"), matrix.rows(TABLE), ids=str)
def test_interrupted_is_bitwise_the_same(found: list[dict[str, Any]], name: str, interruption: Interruption) -> None:
    matrix.check(found, name, interruption)


def test_each_fold_trains_a_model_of_its_own(found: list[dict[str, Any]]) -> None:
    first, second = found[0][matrix.UNDISTURBED + "folds"]["facts"]
    assert first["weights"] != second["weights"]
    assert len(second["rows"]) == len(first["rows"])


def test_a_complete_checkpoint_stays_until_the_next_one_is_complete(found: list[dict[str, Any]]) -> None:
    assert found[0]["steps kill on_save 6"]["kept"] == ["checkpoint-4"], "with save_total_limit=1"
    assert found[0]["steps kill on_step_begin 6"]["kept"] == ["checkpoint-6"]


def test_what_only_a_resume_needs_is_removed_later(found: list[dict[str, Any]]) -> None:
    assert found[0]["sparse drain on_step_end 5"]["kept"] == ["checkpoint-4", "resume-6"]
    # the first fold's last and best one, and the second one's
    assert found[0]["folds drain on_step_end 3 of part 1"]["kept"] == ["checkpoint-12", "checkpoint-4", "checkpoint-6"]


def test_a_job_whose_rank_is_killed_ends_the_same(found: list[dict[str, Any]], tmp_path: Path) -> None:
    interruption = Interruption(event="on_step_end", part=1, step=4)
    logs = matrix.check_job("hf_matrix.py", FOLDS, interruption, found[0][matrix.UNDISTURBED + "folds"], tmp_path)
    assert "training ended before the restart, after step 12: it is not repeated" in logs
    assert "resuming after step 2 with 3 ranks" in logs
