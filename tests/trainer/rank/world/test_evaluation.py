"""Each sample is measured once for any number of ranks, and the model is unchanged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import Dataset, TensorDataset

from kittrain import join
from kittrain.job.env import RankEnv
from kittrain.rank.world.distributed import World
from kittrain.rank.world.evaluation import evaluate
from tests.trainer.nodes import free_port
from tests.trainer.sharded import skip_without_fsdp_on_cpus
from tests.trainer.worlds import finish, fork, placed

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


def test_ranks_measure_disjoint_shares_of_all_samples() -> None:
    measured: list[float] = []

    def record(model: nn.Module, batch: list[Tensor]) -> Tensor:
        measured.extend(batch[0].tolist())
        return value(model, batch)

    for rank in range(9):  # without a process group the sum lacks the other ranks' samples, which must be an error
        with pytest.raises(AssertionError, match="values were measured for 7 samples"):
            evaluate(world(rank, 9), MODEL, SAMPLES, record)
    assert measured == [0, 1, 2, 3, 4, 5, 6]


def test_a_measure_without_one_value_per_sample_is_an_error() -> None:
    with pytest.raises(AssertionError, match="3 values were measured for 7 samples"):
        evaluate(world(0, 1), MODEL, SAMPLES, lambda m, b: value(m, b).mean(), batch=3)


def test_the_model_is_in_evaluation_mode_meanwhile_and_generators_are_unchanged() -> None:
    model = nn.Dropout(0.5)
    before = torch.get_rng_state()
    assert evaluate(world(0, 1), model, SAMPLES, value) == 3.0
    modes = [model.training]
    model.eval()
    evaluate(world(0, 1), model, SAMPLES, value)
    assert [*modes, model.training] == [True, False]
    assert torch.equal(torch.get_rng_state(), before)


def test_all_ranks_measure_with_rank_0s_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(World, "broadcast_buffers", lambda _, module: done.append(module))

    def measure(model: nn.Module, batch: list[Tensor]) -> Tensor:
        done.append("measured")
        return value(model, batch)

    evaluate(world(0, 1), MODEL, SAMPLES, measure)
    assert done[:2] == [MODEL, "measured"]


def test_each_module_gets_its_former_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(1).eval()))
    model.add_module("frozen", nn.Sequential(nn.Identity()).eval())
    before = [module.training for module in model.modules()]
    evaluate(world(0, 1), model, SAMPLES, lambda _, batch: batch[0])
    assert [module.training for module in model.modules()] == before
    assert len(set(before)) == 2


def test_an_error_of_the_measure_restores_the_mode() -> None:
    model = nn.Dropout()

    def fail(_: nn.Module, __: list[Tensor]) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(world(0, 1), model, SAMPLES, fail)
    assert model.training


def test_an_empty_data_set_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        evaluate(world(0, 1), MODEL, TensorDataset(torch.zeros(0)), value)


class Noisy(Dataset[Tensor]):
    """Random samples."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Tensor:
        return torch.rand(()) + index


def test_random_samples_are_the_same_each_time_and_generators_are_unchanged() -> None:
    before = torch.get_rng_state()
    measured = [evaluate(world(0, 1), MODEL, Noisy(), lambda _, batch: batch, batch=size) for size in (2, 5)]
    assert measured[0] == measured[1]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_all_ranks_measure_with_the_buffers_of_rank_0(tmp_path: Path) -> None:
    """Each rank's BatchNorm has statistics of its own share: a mean over both would be of no model."""
    port = free_port()
    ranks = [fork(evaluate_own_statistics, rank, port, tmp_path / str(rank)) for rank in (0, 1)]
    assert [finish(rank) for rank in ranks] == [0, 0]
    measured = [json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1)]
    assert measured == [[pytest.approx(3.5 - 10.0, abs=1e-3), 10.0]] * 2


def evaluate_own_statistics(rank: int, port: int, out: Path) -> None:
    """Eight samples, with a running mean of 10 on rank 0 and 20 on rank 1."""
    os.environ.update({**placed(rank, 2, port), "KIT_BACKEND": "gloo"})
    with join() as world:
        model = nn.BatchNorm1d(1, affine=False)
        assert isinstance(model.running_mean, Tensor)
        model.running_mean.fill_(10.0 * (rank + 1))
        samples = TensorDataset(torch.arange(8.0).view(-1, 1))
        mean = evaluate(world, model, samples, lambda m, b: m(b[0]).view(-1), batch=2)
        out.write_text(json.dumps([mean, model.running_mean.item()]))


@pytest.mark.slow
def test_ranks_without_samples_take_part_in_collective_forward_passes(tmp_path: Path) -> None:
    skip_without_fsdp_on_cpus()
    port = free_port()
    ranks = [fork(evaluate_sharded, rank, port, tmp_path / str(rank)) for rank in (0, 1)]
    assert [finish(rank) for rank in ranks] == [0, 0]
    means = [json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1)]
    assert means[0] == means[1]
    assert means[0] == [[pytest.approx(expected) for expected in (4.0, 0.0, 3.5)]] * 2


def evaluate_sharded(rank: int, port: int, out: Path) -> None:
    """Nine samples in batches of 2, the last of which only rank 0 has; then one sample, and eight."""
    os.environ.update({**placed(rank, 2, port), "KIT_BACKEND": "gloo"})
    with join() as world:
        means = []
        for parts_only in (False, True):
            model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
            for parameter in model.parameters():
                nn.init.constant_(parameter, 0.5 if parameter.ndim > 1 else 0.0)
            mesh = init_device_mesh("cpu", (2,))
            fully_shard(model[1], mesh=mesh)
            if not parts_only:
                fully_shard(model, mesh=mesh)
            sets = [TensorDataset(torch.arange(float(count)).view(-1, 1)) for count in (9, 1, 8)]
            means.append([evaluate(world, model, one, lambda m, b: m(b[0]).view(-1), batch=2) for one in sets])
        out.write_text(json.dumps(means))
