"""Each sample is measured once, whatever the world, and the model is left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from trainer.env import RankEnv
from trainer.world.distributed import World
from trainer.world.evaluation import evaluate

MODEL = nn.Identity()
SAMPLES = TensorDataset(torch.arange(7.0))


def world(rank: int, size: int) -> World:
    return World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))


def value(model: nn.Module, batch: list[Tensor]) -> Tensor:
    result: Tensor = model(batch[0])
    return result


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_the_mean_of_all_samples(batch: int) -> None:
    assert evaluate(world(0, 1), MODEL, SAMPLES, value, batch=batch) == 3.0
    assert evaluate(world(0, 1), MODEL, SAMPLES, lambda m, b: value(m, b) > 3, batch=batch) == pytest.approx(3 / 7)


def test_ranks_measure_disjoint_parts_of_all() -> None:
    measured: list[float] = []

    def note(model: nn.Module, batch: list[Tensor]) -> Tensor:
        measured.extend(batch[0].tolist())
        return value(model, batch)

    for rank in range(9):  # without a process group the sum lacks the other ranks' samples, and the check must see it
        with pytest.raises(AssertionError, match="values were measured for 7 samples"):
            evaluate(world(rank, 9), MODEL, SAMPLES, note)
    assert measured == [0, 1, 2, 3, 4, 5, 6]


def test_a_measure_that_is_not_one_value_a_sample_is_found() -> None:
    with pytest.raises(AssertionError, match="3 values were measured for 7 samples"):
        evaluate(world(0, 1), MODEL, SAMPLES, lambda m, b: value(m, b).mean(), batch=3)


def test_the_model_is_in_evaluation_mode_meanwhile_and_generators_stay() -> None:
    model = nn.Dropout(0.5)
    before = torch.get_rng_state()
    assert evaluate(world(0, 1), model, SAMPLES, value) == 3.0
    modes = [model.training]
    model.eval()
    evaluate(world(0, 1), model, SAMPLES, value)
    assert [*modes, model.training] == [True, False]
    assert torch.equal(torch.get_rng_state(), before)
