"""Choice of backend and device, and a world of size 1."""

from __future__ import annotations

import math
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from kittrain.job.env import RankEnv
from kittrain.rank.world.distributed import DistributedError, World, choose_backend, join, step_timeout, wait_for_rank_0
from tests.trainer.nodes import TIMEOUT, free_port
from tests.trainer.settings import job

CPU, GPU_0, GPU_1 = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("backend", "ranks", "requested", "gpus", "expected"),
    [
        ("auto", 2, 0, 0, ("gloo", CPU)),
        ("auto", 2, 2, 2, ("nccl", GPU_1)),
        ("auto", 2, 2, 8, ("nccl", GPU_1)),
        ("nccl", 2, 2, 2, ("nccl", GPU_1)),
        ("gloo", 2, 0, 2, ("gloo", CPU)),
        ("gloo", 2, 2, 0, ("gloo", CPU)),  # simulated GPUs
        ("gloo", 2, 2, 2, ("gloo", GPU_1)),
        ("gloo", 2, 1, 1, ("gloo", GPU_0)),  # shared by two ranks
    ],
)
def test_backend_and_device(
    backend: Any, ranks: int, requested: int, gpus: int, expected: tuple[str, torch.device]
) -> None:
    env = RankEnv(job=job(gpus_per_node=requested), backend=backend, local_rank=1, local_world_size=ranks)
    assert choose_backend(env, gpus=gpus) == expected


@pytest.mark.parametrize(("backend", "gpus"), [("nccl", 0), ("nccl", 1), ("auto", 1)])
def test_missing_gpus_are_an_error(backend: Any, gpus: int) -> None:
    env = RankEnv(backend=backend, local_rank=0, local_world_size=2)
    with pytest.raises(DistributedError, match=rf"2 ranks on this node see {gpus} GPUs.*`backend: gloo`"):
        choose_backend(env, gpus=gpus)


def test_a_lone_process_has_no_process_group() -> None:
    with join(seed=5) as world:
        assert not torch.distributed.is_initialized()
        check(world)
        drawn = torch.rand(1)
    with join(seed=5):
        assert torch.equal(torch.rand(1), drawn)


def test_a_single_rank_of_torchrun_has_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    with join() as world:
        assert torch.distributed.is_initialized()
        check(world)
    assert not torch.distributed.is_initialized()


def test_other_ranks_wait_until_rank_0_listens() -> None:
    port = free_port()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(wait_for_rank_0, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        with socket.create_server(("127.0.0.1", port)):
            waiting.result(TIMEOUT)


def check(world: World) -> None:
    assert (world.rank, world.size, world.is_main) == (0, 1, True)
    assert world.broadcast_value("sent", str) == "sent"
    assert world.gather("own", str) == ["own"]
    assert world.sum(torch.ones(2)).tolist() == [1, 1]
    world.barrier()
    model = nn.BatchNorm1d(2)
    assert world.parallel(model)(torch.eye(3, 2)).shape == (3, 2)
    world.broadcast_buffers(model)
    assert world.synchronize_batchnorm(model) is model


def test_sync_batchnorm_on_cpus_is_an_error() -> None:
    world = World(env=RankEnv(world_size=2), device=CPU)
    with pytest.raises(DistributedError, match="needs a GPU"):
        world.synchronize_batchnorm(nn.BatchNorm1d(2))


def test_only_rank_0_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        World(env=RankEnv(rank=rank, world_size=2), device=CPU).print(f"I am {rank}")
    assert capsys.readouterr().out == "I am 0\n"


@pytest.mark.parametrize(("hang_timeout", "seconds"), [(None, 300), (60.0, 300), (1200.0, 1200), (math.inf, 24 * 3600)])
def test_the_timeout_is_at_least_the_hang_timeout(hang_timeout: float | None, seconds: int) -> None:
    assert step_timeout(hang_timeout).total_seconds() == seconds
