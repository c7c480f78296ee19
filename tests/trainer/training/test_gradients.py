"""What the ranks tell each other rides along with their gradients, and changes none of them."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, DDPOptions, World, join
from kittrain.env import RankEnv
from kittrain.training.gradients import Averaged
from kittrain.training.pulse import Pulse, Step, Word
from kittrain.world.order import Cursor
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork, placed

RANKS = 3
EPOCHS = 4  # of one step: DDP makes its buckets anew behind the first one, and keeps them then
SAMPLES = 7  # 3, 2 and 2 of them a rank
WORDS = [Word(written=True, kept=True), Word(written=True, stop=True), Word(written=True, due=True)]  # by rank


class Model(nn.Linear):
    """Counts its forward passes, each rank with steps of its own; the count is a buffer, and so rank 0's."""

    def __init__(self, rank: int, dtype: torch.dtype) -> None:
        super().__init__(5, 1, dtype=dtype)
        self.forwards: Tensor
        self.register_buffer("forwards", torch.zeros(()))
        self._by = 1 + rank

    def forward(self, inputs: Tensor) -> Tensor:
        self.forwards += self._by
        return super().forward(inputs)


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    inputs, targets = batch
    return functional.mse_loss(model(inputs), targets)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_loss_and_words_are_averaged_beside_the_gradients(tmp_path: Path, dtype: torch.dtype) -> None:
    alone = learned(dtype)
    port = free_port()
    ranks = [fork(learn_as, rank, port, dtype, tmp_path / f"{rank}.pt") for rank in range(RANKS)]
    assert [finish(rank) for rank in ranks] == [0] * RANKS
    rtol, atol = (2e-2, 1e-2) if dtype == torch.bfloat16 else (1e-5, 1e-6)
    for rank in range(RANKS):
        told = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        torch.testing.assert_close(told["gradients"], alone["gradients"], rtol=rtol, atol=atol)
        torch.testing.assert_close(told["losses"], alone["losses"], rtol=rtol, atol=atol)
        assert told["names"] == alone["names"] == ["weight", "bias"]
        assert told["forwards"] == EPOCHS + rank  # its own last ones, behind rank 0's before
        assert told["heard"] == [asdict(Word(stop=True, written=True, due=True))] * EPOCHS


def learn_as(rank: int, port: int, dtype: torch.dtype, out: Path) -> None:
    os.environ.update({**placed(rank, RANKS, port), "KIT_BACKEND": "gloo"})

    def unexpected(*_: Any, **__: Any) -> None:
        raise AssertionError("a step has no collective beside DDP's own")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", unexpected)
        torch.save(learned(dtype, rank), out)


def samples_of(dtype: torch.dtype) -> Data:
    generator = torch.Generator().manual_seed(0)
    samples = TensorDataset(*(torch.rand(SAMPLES, width, generator=generator).to(dtype) for width in (5, 1)))
    return Data(samples, batch=SAMPLES)


def learned(dtype: torch.dtype, rank: int = 0) -> dict[str, Any]:
    with join(seed=1) as world:
        model = Model(rank, dtype)
        gradients, pulse = Averaged(world, model, loss, samples_of(dtype)), Pulse(world)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found, losses, heard = list[Tensor](), list[float](), list[dict[str, bool]]()

        def read(step: Step | None) -> None:
            if step:
                losses.append(step.loss)
                heard.append(asdict(pulse.heard))

        for number, parts in enumerate(gradients.batches(Cursor(0, 0), EPOCHS)):
            optimizer.zero_grad()
            mean = gradients.learn(parts, lambda: WORDS[rank])
            found += [one.grad.clone() for one in model.parameters() if one.grad is not None]
            optimizer.step()
            read(pulse.send(Step(number=number, generation=1, cursor=Cursor(0, 0), ids=[], size=SAMPLES), mean))
        read(pulse.flush())
        names = [name for name, _ in model.named_parameters()]
        forwards = int(model.forwards)
    return {"gradients": found, "losses": losses, "heard": heard, "names": names, "forwards": forwards}


def test_a_rank_with_fewer_samples_counts_for_less() -> None:
    """Without a process group each rank has its own part: they average to what one rank alone finds."""
    alone = learned(torch.float64)
    found = []
    for rank in range(RANKS):
        world = World(env=RankEnv(rank=rank, world_size=RANKS), device=torch.device("cpu"))
        with join(seed=1):
            model = Model(0, torch.float64)
        gradients = Averaged(world, model, loss, samples_of(torch.float64))
        gradients.learn(next(gradients.batches(Cursor(), 1)), Word)
        assert model.weight.grad is not None
        found.append(model.weight.grad)
    torch.testing.assert_close(sum(found) / RANKS, alone["gradients"][0])
    assert not torch.allclose(found[0], found[1])


def test_a_model_of_which_only_parts_are_sharded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would average the gradients of the rest."""
    for name, value in placed(0, 1, free_port()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KIT_BACKEND", "gloo")
    with join() as world:
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
        mesh = init_device_mesh("cpu", (1,))
        fully_shard(model[1], mesh=mesh)
        with pytest.raises(ValueError, match=r"gradients of model.0.weight, model.0.bias: call fully_shard\(model\)"):
            Averaged(world, model, loss, samples_of(torch.float32))
        fully_shard(model, mesh=mesh)
        gradients = Averaged(world, model, loss, samples_of(torch.float32))
        mean = gradients.learn(next(gradients.batches(Cursor(), 1)), lambda: Word(stop=True))
        assert mean.read()[1] == 1
        assert all(one.grad is not None for one in model.parameters())


class Net(nn.Sequential):
    """Has what scripts ask a model for, two heads, and statistics."""

    config: Any

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.other = nn.Linear(4, 1)
        self.config = {"dim": 7}
        self.dim = 7  # DDP has one of its own

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self[2](self[1](self[0](inputs)))
        return outputs

    def encode(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self[1](self[0](inputs))
        return hidden


def squares(outputs: Tensor, batch: list[Tensor]) -> Tensor:
    return functional.mse_loss(outputs, batch[1])


def whole(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """All parameters have a part in it, and the model is called twice."""
    assert isinstance(model, Net)
    inner = model.encode(batch[0])
    return squares(model(batch[0]), batch) + squares(model.other(inner), batch)


def in_parts(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Never calls the model itself, and asks for all kinds of its attributes."""
    assert isinstance(model, Net)
    assert (model.config["dim"], model.dim, len(model)) == (7, 7, 4)
    assert "0.weight" in dict(model.named_parameters())
    inner = model.encode(batch[0])
    return squares(model[2](inner), batch) + squares(model.other(inner), batch)


def one_head(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """One head is not used at all."""
    return squares(model(batch[0]), batch)


def a_head_a_rank(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Each rank uses another head."""
    assert isinstance(model, Net)
    head = (model[2], model.other)[rank_or_0()]
    return squares(head(model.encode(batch[0])), batch)


def on_rank_0(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The other ranks have nothing to learn."""
    return whole(model, batch) if rank_or_0() == 0 else torch.zeros(())


def compiled(model: Any, batch: list[Tensor]) -> Tensor:
    """What torch.compile gives is the model."""
    return squares(model(batch[0]), batch) + squares(model.other(model.encode(batch[0])), batch)


def rank_or_0() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


LAST = Cursor(2)  # static graphs are found out in the first step, and buckets are made anew behind it
UNUSED = DDPOptions(find_unused_parameters=True)
OPTIONS = {
    "defaults": (DDPOptions(), whole),
    "in parts": (DDPOptions(), in_parts),
    "compiled": (DDPOptions(), compiled),
    "small buckets": (DDPOptions(bucket_cap_mb=1e-5), whole),
    "copies": (DDPOptions(gradient_as_bucket_view=False), whole),
    "own buffers": (DDPOptions(broadcast_buffers=False), whole),
    "static": (DDPOptions(static_graph=True), whole),
    "static, unused": (DDPOptions(static_graph=True), one_head),
    "all used": (UNUSED, whole),
    "unused": (UNUSED, one_head),
    "unused, compiled": (UNUSED, compiled),
    "a head a rank": (UNUSED, a_head_a_rank),
    "on rank 0": (UNUSED, on_rank_0),
    "hook": (DDPOptions(comm_hook=bf16_compress_hook), whole),
    "hook, on rank 0": (DDPOptions(comm_hook=bf16_compress_hook, find_unused_parameters=True), on_rank_0),
}  # by name, what DDP is told and what is learned


@pytest.mark.slow
def test_ddp_does_as_it_is_told_and_words_ride_along(tmp_path: Path) -> None:
    port = free_port()
    ranks = [fork(learn_with_options, rank, port, tmp_path / f"{rank}.pt") for rank in (0, 1)]
    assert [finish(rank) for rank in ranks] == [0, 0]
    told = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1)]
    assert [list(one) for one in told] == [list(OPTIONS)] * 2
    for name in OPTIONS:
        tolerance = 3e-2 if name.startswith("hook") else 1e-5
        (gradients, losses, heard), (others, *same) = (one[name] for one in told)
        expected, parts = mean_of_both(name)
        for found in (gradients, others):
            assert list(found) == list(expected)
            for parameter in found:
                torch.testing.assert_close(found[parameter], expected[parameter], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(losses[-1], parts, rtol=1e-5, atol=1e-5)
        assert same == [losses, heard]
        assert heard == asdict(Word(stop=True, written=True))


def learn_with_options(rank: int, port: int, out: Path) -> None:
    """Three steps of each case; of these the last gradients, the losses, and what was heard."""
    os.environ.update({**placed(rank, 2, port), "KIT_BACKEND": "gloo"})
    told = {}
    with join(seed=1) as world:
        for name, (options, given) in OPTIONS.items():
            torch.manual_seed(3)
            model: nn.Module = Net()
            used: Any = torch.compile(model, backend="aot_eager") if "compiled" in name else model
            gradients, pulse = Averaged(world, used, given, pairs(), options), Pulse(world)
            losses = []
            for number, parts in enumerate(gradients.batches(Cursor(), LAST.epoch + 1)):
                model.zero_grad()
                mean = gradients.learn(parts, lambda: Word(stop=rank == 1, written=True, kept=rank == 0))
                step = Step(number=number, generation=1, cursor=Cursor(), ids=[], size=4)
                losses += [one.loss for one in [pulse.send(step, mean)] if one]
            losses += [one.loss for one in [pulse.flush()] if one]
            found = {key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None}
            told[name] = found, losses, asdict(pulse.heard)
        torch.save(told, out)


def pairs() -> Data:
    """One step of 6 samples; each rank has as many."""
    generator = torch.Generator().manual_seed(0)
    return Data(TensorDataset(*(torch.rand(6, width, generator=generator) for width in (5, 1))), batch=6)


def mean_of_both(name: str) -> tuple[dict[str, Tensor], float]:
    """What plain torch finds: the mean of both ranks' gradients and losses, each from its own half."""
    _, given = OPTIONS[name]
    sums: dict[str, Tensor] = {}
    losses = 0.0
    for rank in (0, 1):
        world = World(env=RankEnv(rank=rank, world_size=2), device=torch.device("cpu"))
        torch.manual_seed(3)
        model = Net()
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "rank_or_0", lambda rank=rank: rank)
            lost = given(model, next(pairs().batches(LAST, LAST.epoch + 1, world)).samples)
        if lost.requires_grad:
            lost.backward()
        losses += lost.item() / 2
        for key, one in model.named_parameters():
            if one.grad is not None:
                sums[key] = sums.get(key, torch.zeros(())) + one.grad / 2
    return {key: sums[key] for key, _ in Net().named_parameters() if key in sums}, losses
