"""Each rank plans its own part: together they write each byte once, on any mesh, and any other mesh restores it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from kittrain import World, attach, join
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.files.tree import Tensors
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.write import planning
from kittrain.rank.snapshots.write.planning import local_pieces
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.nodes import free_port
from tests.trainer.settings import job
from tests.trainer.sharded import skip_without_fsdp_on_cpus
from tests.trainer.worlds import finish, fork, placed


def mesh_of(**sizes: int) -> DeviceMesh:
    return init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    for one in (*model.children(), model):
        fully_shard(one, mesh=mesh)
    return model


def tensor_parallel(model: nn.Module, shard: int, tensor: int) -> nn.Module:
    mesh = mesh_of(shard=shard, tensor=tensor)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return sharded(model, mesh["shard"])


WRAPS: dict[str, Callable[[nn.Module, int], nn.Module]] = {
    "DDP": lambda model, _: DistributedDataParallel(model),
    "sharded": lambda model, size: sharded(model, mesh_of(shard=size)),
    "replicas": lambda model, size: sharded(model, mesh_of(replicate=2, shard=size // 2)),
    "2-D": lambda model, size: tensor_parallel(model, size // 2, 2),
    "4 x 1": lambda model, size: tensor_parallel(model, size, 1),
    "1 x 4": lambda model, size: tensor_parallel(model, 1, size),
    "tensor parallel only": lambda model, size: parallelize_module(
        model, mesh_of(tensor=size), {"0": ColwiseParallel(), "2": RowwiseParallel()}
    ),
}


def trained(wrap: Callable[[nn.Module, int], nn.Module] | None, size: int, *, seed: int) -> State:
    """A model and its optimizer after a step; the layers do not divide evenly among the ranks."""
    torch.manual_seed(seed)
    model: nn.Module = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 3))
    if wrap:
        model = wrap(model, size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
    model(torch.ones(2, 5)).square().mean().backward()
    optimizer.step()
    return State(model=model, optimizer=optimizer)


def whole(state: State) -> Tensors:
    """All tensors of a state, each as a whole."""
    tensors, _ = state.capture()
    return {name: one.full_tensor() if isinstance(one, DTensor) else one.clone() for name, one in tensors.items()}


def manager(world: World, state: State, folder: Path) -> SnapshotManager:
    env = replace(world.env, snapshot_dir=folder, run_id="run", job=job(resume=True))
    return SnapshotManager(replace(world, env=env), state, Order(samples=24, batch=12))


def run(act: Callable[..., None], *args: Any, size: int) -> None:
    """Run a function on real ranks, all of which have to succeed."""
    port = free_port()
    ranks = [fork(be_rank, placed(rank, size, port), act, args) for rank in range(size)]
    assert [finish(rank) for rank in ranks] == [0] * size


def be_rank(env: Mapping[str, str], act: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.update({**env, "KIT_BACKEND": "gloo"})
    torch.set_num_threads(1)
    with join() as world:
        act(world, *args)


def save(world: World, folder: Path) -> None:
    """Save a state of each kind, and check that each byte is written once; rank 0 leaves it whole, too."""
    for name, wrap in WRAPS.items():
        state = trained(wrap, world.size, seed=1)
        with manager(world, state, folder / name) as saving:
            saving.restore()
            with patch.object(planning, "assign_pieces", side_effect=AssertionError("rank 0 plans")):
                saving.commit(Cursor(0, 12), {})
            saving.finish()
        tensors = whole(state)
        if world.is_main:
            check(folder / name, tensors)
            torch.save(tensors, folder / name / "whole.pt")
            model = torch.load(folder / name / "model.pt", weights_only=True)
            expected = {key.removeprefix("model/"): one for key, one in tensors.items() if key.startswith("model/")}
            torch.testing.assert_close(model, expected, rtol=0, atol=0)


def check(folder: Path, tensors: Tensors) -> None:
    """Check that the newest snapshot has each byte of a state once, and that replicas share the work."""
    path = max(folder.glob("step-*"))
    opened = list(snapshot.open_shards(path, read_manifest(path)))
    boxes = Counter((piece.tensor, piece.offsets) for shard in opened for piece in shard.pieces)
    assert set(boxes.values()) == {1}, folder.name
    written = dict.fromkeys(tensors, 0)
    for shard in opened:
        for piece in shard.pieces:
            written[piece.tensor] += piece.stop - piece.start
    assert written == {name: one.nbytes for name, one in tensors.items()}, folder.name
    most = max(sum(piece.stop - piece.start for piece in shard.pieces) for shard in opened)
    assert most < sum(written.values()) / 2, folder.name


def restore(world: World, folder: Path, wrap: str) -> None:
    """Restore the state of each mesh in another one."""
    for saved in sorted(folder.iterdir()):
        state = trained(WRAPS[wrap], world.size, seed=2)
        with manager(world, state, saved) as restoring:
            restoring.restore()
        same(state, saved)


def same(state: State, saved: Path) -> None:
    torch.testing.assert_close(whole(state), torch.load(saved / "whole.pt", weights_only=True), rtol=0, atol=0)


def save_and_restore(world: World, folder: Path) -> None:
    save(world, folder)
    world.barrier()
    for wrap in ("sharded", "2-D", "1 x 4"):
        restore(world, folder, wrap)
    plan_what_differs(world)
    find_nan(world, folder.with_name("nan"))


def plan_what_differs(world: World) -> None:
    """States for which a rank's own plan does not do: rank 0 plans."""
    same_on_all = {"a": torch.ones(3), "b": torch.ones(4)}
    mine = same_on_all | ({"late": torch.ones(2)} if world.rank == 1 else {})
    twice = [  # each half of the ranks has a mesh of its own for the same tensor, in another order
        distribute_tensor(torch.arange(8.0), DeviceMesh("cpu", ranks), [Shard(0)]) for ranks in ([0, 1], [3, 2])
    ]
    half: Tensors = {"half": twice[world.rank // 2]}
    with patch.object(planning, "assign_pieces", wraps=planning.assign_pieces) as by_rank_0:
        planned = [planning.plan(world, state, main_only=False) for state in (mine, half)]
        with patch.object(planning, "digest", lambda _: world.rank):  # no rank finds the others that hold its parts
            alone = planning.plan(world, same_on_all, main_only=False)
    assert by_rank_0.call_count == 3
    assert len(alone.pieces) == (world.rank < 2)
    found = world.gather([piece.tensor for one in planned for piece in one.pieces], list[str])
    if world.is_main:
        assert Counter(name for names in found for name in names) == {"a": 1, "b": 1, "late": 1, "half": 2}
    only = planning.plan(world, same_on_all, main_only=True)
    assert len(only.pieces) == (2 if world.is_main else 0)


def find_nan(world: World, folder: Path) -> None:
    """The last rank's part of the weights has NaN; the loss is not known to."""
    state = trained(WRAPS["sharded"], world.size, seed=1)
    if world.rank == world.size - 1:
        with torch.no_grad():
            cast("DTensor", next(state.model.parameters())).to_local().fill_(torch.nan)
    with manager(world, state, folder) as saving:
        saving.restore()
        saving.commit(Cursor(0, 12), {})
    if world.is_main:
        (path,) = folder.glob("step-*")
        assert read_manifest(path).not_finite == "model/0.weight has nan"


@pytest.mark.wide
@pytest.mark.slow
def test_each_byte_is_written_once_and_any_other_mesh_restores_it(tmp_path: Path) -> None:
    skip_without_fsdp_on_cpus()
    folder = tmp_path / "saved"
    folder.mkdir()
    run(save_and_restore, folder, size=4)
    run(restore, folder, "4 x 1", size=2)
    for saved in sorted(folder.iterdir()):
        state = trained(None, 1, seed=2)
        with manager(attach(env=RankEnv()), state, saved) as restoring:
            restoring.restore()
        same(state, saved)


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_replicas_share_what_they_hold_evenly(ranks: int) -> None:
    state = {f"{number}": torch.ones(size) for number, size in enumerate([7, 1, 90, 30, 30, 28, 1, 1, 60, 2])}
    pieces = local_pieces(state)
    holders = [5 * rank for rank in range(ranks)]
    written = [planning.written_by(rank, pieces, holders) for rank in holders]
    assert sorted(one.tensor for each in written for one in each) == sorted(state)
    assert max(sum(one.stop for one in each) for each in written) <= max(4 * 90, 4 * 250 / ranks + 4 * 7)
    assert planning.written_by(1, pieces, holders) == []


def test_a_scalar_and_an_empty_tensor_are_planned() -> None:
    state = {"scalar": torch.tensor(1.0), "empty": torch.ones(0, 3)}
    planned = planning.plan(attach(env=RankEnv()), state, main_only=False)
    assert [piece.tensor for piece in planned.pieces] == ["scalar", "empty"]
