"""Values that real ranks exchange have the declared types, and are never unpickled."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from kittrain.rank.snapshots.files.shards import Piece, Shard
from kittrain.rank.world import exchange
from kittrain.rank.world.distributed import DistributedError, World, join
from tests.trainer import sharded
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork, placed

pytestmark = pytest.mark.slow

Report = Shard | OSError | None


def run(act: Callable[..., None], *args: Any, size: int = 3) -> None:
    """Run a function on real ranks, all of which have to succeed."""
    port = free_port()
    ranks = [fork(be_rank, placed(rank, size, port), act, args) for rank in range(size)]
    assert [finish(rank) for rank in ranks] == [0] * size


def be_rank(env: Mapping[str, str], act: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.update({**env, "KIT_BACKEND": "gloo"})
    with join() as world:
        act(world, *args)


class Payload:
    """Its pickle runs a command when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def receive_pickles(world: World, mark: Path) -> None:
    """Rank 1, and then rank 0, sends a pickle."""
    if world.rank == 1:
        dist.gather_object(Payload(mark), None, dst=0)
    elif world.is_main:
        with pytest.raises(DistributedError, match="rank 1 sent an invalid message: not JSON"):
            world.gather("mine", str)
    else:
        world.gather("mine", str)
    world.barrier()
    if world.is_main:
        exchange.broadcast(pickle.dumps(Payload(mark)), torch.device("cpu"), source=0)
    else:
        with pytest.raises(DistributedError, match="rank 0 sent"):
            world.broadcast_value(None, list[str])
    world.barrier()


def test_a_pickle_is_not_executed_by_other_ranks(tmp_path: Path) -> None:
    run(receive_pickles, tmp_path / "executed")
    assert not list(tmp_path.iterdir())


def exchange_values(world: World) -> None:
    own = world.rank
    piece = Piece(tensor=f"é{own}", dtype="float32", shape=(2, 3), offsets=(0, own), sizes=(2, 1), start=0, stop=24)
    assert world.broadcast_value([piece] if own == 2 else None, list[Piece], source=2)[0].tensor == "é2"
    assert [one.offsets for one in world.gather(piece, Piece)] == [(0, rank) for rank in range(3) if own == 0]
    reports: list[Report] = [Shard(size=1, data=2, sha256="x"), OSError(28, "No space left on device"), None]
    gathered: list[Report] = world.gather(reports[own], Report)
    assert list(map(str, gathered)) == (list(map(str, reports)) if world.is_main else [])
    for length in (0, 1, exchange.SHORT, exchange.SHORT + 1, 3 * exchange.SHORT):  # a long one is sent by itself
        sent = bytes(index % 251 for index in range(length))
        assert world.broadcast_bytes(sent if own == 1 else b"another", source=1) == sent
    assert world.scatter(["a", "b" * 1000, ""] if world.is_main else [], str) == ["a", "b" * 1000, ""][own]


def test_values_of_any_length_are_unchanged() -> None:
    run(exchange_values)


def fail(world: World) -> None:
    def act() -> int:
        if world.rank:
            raise FileNotFoundError(2, f"rank {world.rank}")
        return 7

    with pytest.raises(OSError, match=r"\[Errno 2\] rank 1") as raised:
        world.attempt(act, ValueError, OSError)
    assert isinstance(raised.value, FileNotFoundError) == (world.rank == 1)
    assert world.attempt(lambda: 7, OSError) == 7


def test_all_ranks_raise_the_error_of_the_lowest_failed_rank() -> None:
    run(fail)


def train_without_pickle(env: dict[str, str], kind: sharded.Kind, epochs: int, log: Path) -> None:
    def unexpected(*_: Any, **__: Any) -> None:
        raise AssertionError("torch's object collectives unpickle what they receive")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed_c10d, "_tensor_to_object", unexpected)
        patch.setattr(distributed_c10d, "_object_to_tensor", unexpected)
        sharded.run_rank(env, kind, epochs, None, log)


@pytest.mark.parametrize(("kind", "folders"), [("replicated", 2), ("sharded", 1)])
def test_training_saving_and_restoring_unpickle_nothing(tmp_path: Path, kind: sharded.Kind, folders: int) -> None:
    if kind == "sharded":
        sharded.skip_without_fsdp_on_cpus()
    paths = [tmp_path / f"snapshots-{rank % folders}" for rank in range(2)]
    for epochs in (1, 2):
        shared = {
            "MASTER_PORT": str(free_port()),
            "KIT_BACKEND": "gloo",
            "KIT_SNAPSHOTS_EVERY_STEPS": "2",
            "KIT_RESUME": "1",
        }
        ranks = [
            fork(
                train_without_pickle,
                placed(rank, 2, 0) | shared | {"KIT_SNAPSHOT_DIR": str(path), "PET_RDZV_ID": "run"},
                kind,
                epochs,
                tmp_path / f"log-{rank}",
            )
            for rank, path in enumerate(paths)
        ]
        assert [finish(rank) for rank in ranks] == [0, 0], (tmp_path / "log-0").read_text()
    assert "resuming after step 4" in (tmp_path / "log-0").read_text()
