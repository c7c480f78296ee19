"""The ranks' messages are piggybacked on their gradients, and do not change them."""

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
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, DDPOptions, Run, World, evaluate, join
from kittrain.job.env import RankEnv
from kittrain.rank.training.gradients import AveragedGradients
from kittrain.rank.training.step_sync import Step, StepMessage, StepSync
from kittrain.rank.world.order import Cursor
from tests.trainer.nodes import free_port
from tests.trainer.sharded import skip_without_fsdp_on_cpus
from tests.trainer.worlds import finish, fork, placed

RANKS = 3
EPOCHS = 4  # of one step: DDP rebuilds its buckets after the first one, and keeps them
SAMPLES = 7  # 3, 2 and 2 per rank
MESSAGES = [
    StepMessage(written=True, copied=True),
    StepMessage(written=True, stop=True),
    StepMessage(written=True, due=True),
]  # by rank


class Model(nn.Linear):
    """Counts its forward passes, in steps that differ by rank; the count is a buffer, and so becomes rank 0's."""

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
def test_loss_and_messages_are_averaged_with_the_gradients(tmp_path: Path, dtype: torch.dtype) -> None:
    alone = learned(dtype)
    port = free_port()
    ranks = [fork(learn_as, rank, port, dtype, tmp_path / f"{rank}.pt") for rank in range(RANKS)]
    assert [finish(rank) for rank in ranks] == [0] * RANKS
    rtol, atol = (2e-2, 1e-2) if dtype == torch.bfloat16 else (1e-5, 1e-6)
    for rank in range(RANKS):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        torch.testing.assert_close(found["gradients"], alone["gradients"], rtol=rtol, atol=atol)
        torch.testing.assert_close(found["losses"], alone["losses"], rtol=rtol, atol=atol)
        assert found["names"] == alone["names"] == ["weight", "bias"]
        assert found["forwards"] == EPOCHS + rank  # its own last step, on top of rank 0's earlier ones
        assert found["received"] == [asdict(StepMessage(stop=True, written=True, due=True))] * EPOCHS


def learn_as(rank: int, port: int, dtype: torch.dtype, out: Path) -> None:
    os.environ.update({**placed(rank, RANKS, port), "KIT_BACKEND": "gloo"})

    def unexpected(*_: Any, **__: Any) -> None:
        raise AssertionError("a step must have no collective besides DDP's own")

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
        gradients, sync = AveragedGradients(world, model, loss, samples_of(dtype)), StepSync(world)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found, losses, received = list[Tensor](), list[float](), list[dict[str, bool]]()

        def read(steps: list[Step]) -> None:
            for step in steps:
                losses.append(step.loss)
                received.append(asdict(sync.received))

        for number, parts in enumerate(gradients.batches(Cursor(0, 0), EPOCHS)):
            optimizer.zero_grad()
            mean = gradients.backward(parts, lambda: MESSAGES[rank])
            found += [one.grad.clone() for one in model.parameters() if one.grad is not None]
            optimizer.step()
            read(sync.send(Step(number=number, generation=1, cursor=Cursor(0, 0), ids=[], size=SAMPLES), mean))
        read(sync.flush())
        names = [name for name, _ in model.named_parameters()]
        forwards = int(model.forwards)
    return {"gradients": found, "losses": losses, "received": received, "names": names, "forwards": forwards}


def test_ranks_are_weighted_by_their_samples() -> None:
    """Without a process group each rank computes its own part: their mean is the gradient of a single rank."""
    alone = learned(torch.float64)
    found = []
    for rank in range(RANKS):
        world = World(env=RankEnv(rank=rank, world_size=RANKS), device=torch.device("cpu"))
        with join(seed=1):
            model = Model(0, torch.float64)
        gradients = AveragedGradients(world, model, loss, samples_of(torch.float64))
        gradients.backward(next(gradients.batches(Cursor(), 1)), StepMessage)
        assert model.weight.grad is not None
        found.append(model.weight.grad)
    torch.testing.assert_close(sum(found) / RANKS, alone["gradients"][0])
    assert not torch.allclose(found[0], found[1])


@pytest.fixture
def _one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**placed(0, 1, free_port()), "KIT_BACKEND": "gloo"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_one_rank")
def test_a_model_that_is_only_partly_sharded_is_an_error() -> None:
    """The gradients of the rest would not be averaged."""
    with join() as world:
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
        fully_shard(model[1], mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(ValueError, match=r"gradients of model.0.weight, model.0.bias: call fully_shard\(model\)"):
            AveragedGradients(world, model, loss, samples_of(torch.float32))


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.parametrize("sharded", [True, False])
def test_tensor_parallelism_is_an_error_if_each_rank_has_its_own_samples(*, sharded: bool) -> None:
    with join() as world:
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("shard", "tensor"))
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        if sharded:
            fully_shard(model, mesh=mesh["shard"])
        data = samples_of(torch.float32)
        for use in (
            lambda: AveragedGradients(world, model, loss, data),
            lambda: evaluate(world, model, TensorDataset(torch.rand(3, 5)), lambda _, batch: batch[0]),
            lambda: Run(world, model=model, data=data),
        ):
            with pytest.raises(ValueError, match=r"0.weight is divided by tensor parallelism"):
                use()


@pytest.mark.usefixtures("_one_rank")
def test_replicas_of_a_sharded_model_are_no_tensor_parallelism() -> None:
    skip_without_fsdp_on_cpus()
    with join() as world:
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
        fully_shard(model, mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard")))
        gradients = AveragedGradients(world, model, loss, samples_of(torch.float32))
        gradients.backward(next(gradients.batches(Cursor(), 1)), StepMessage)
        assert all(one.grad is not None for one in model.parameters())


@pytest.mark.usefixtures("_one_rank")
def test_a_sharded_model_has_gradients_and_messages_are_sent() -> None:
    skip_without_fsdp_on_cpus()
    with join() as world:
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
        mesh = init_device_mesh("cpu", (1,))
        for module in (model[1], model):
            fully_shard(module, mesh=mesh)
        gradients = AveragedGradients(world, model, loss, samples_of(torch.float32))
        mean = gradients.backward(next(gradients.batches(Cursor(), 1)), lambda: StepMessage(stop=True))
        assert mean.read()[1] == 1
        assert all(one.grad is not None for one in model.parameters())


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.parametrize("group", [True, False], ids=["in a group", "without one"])
@pytest.mark.parametrize("used", [True, False], ids=["parameters", "no parameters"])
def test_a_lone_rank_reads_its_own_message(*, group: bool, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not group:
        monkeypatch.delenv("RANK")
    with join() as world:
        assert dist.is_initialized() is group
        model = nn.Linear(5, 1)
        options = DDPOptions(find_unused_parameters=not used)
        each = loss if used else lambda *_: torch.full((), 3.0)
        gradients = AveragedGradients(world, model, each, samples_of(torch.float32), options)
        steps = gradients.batches(Cursor(), 2)
        means = [gradients.backward(next(steps), lambda: StepMessage(stop=True, due=True)) for _ in range(2)]
        values = [mean.read()[:5] for mean in means]
        assert [flags for _, *flags in values] == [[1, 0, 1, 0]] * 2
        assert used or [value for value, *_ in values] == [3, 3]
        assert used is (model.weight.grad is not None and bool(model.weight.grad.any()))


class Net(nn.Sequential):
    """Has attributes that scripts use, two heads, and batch statistics."""

    config: Any

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.other = nn.Linear(4, 1)
        self.config = {"dim": 7}
        self.dim = 7  # DDP has an attribute of that name

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self[2](self[1](self[0](inputs)))
        return outputs

    def encode(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self[1](self[0](inputs))
        return hidden


def squares(outputs: Tensor, batch: list[Tensor]) -> Tensor:
    return functional.mse_loss(outputs, batch[1])


def whole(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Uses all parameters, and calls the model twice."""
    assert isinstance(model, Net)
    inner = model.encode(batch[0])
    return squares(model(batch[0]), batch) + squares(model.other(inner), batch)


def in_parts(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Uses attributes of the model without calling it."""
    assert isinstance(model, Net)
    assert (model.config["dim"], model.dim, len(model)) == (7, 7, 4)
    assert "0.weight" in dict(model.named_parameters())
    inner = model.encode(batch[0])
    return squares(model[2](inner), batch) + squares(model.other(inner), batch)


def one_head(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Does not use one of the heads."""
    return squares(model(batch[0]), batch)


def a_head_a_rank(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Each rank uses a different head."""
    assert isinstance(model, Net)
    head = (model[2], model.other)[rank_or_0() % 2]
    return squares(head(model.encode(batch[0])), batch)


def on_rank_0(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Other ranks use no parameters."""
    return whole(model, batch) if rank_or_0() == 0 else torch.zeros(())


def compiled(model: Any, batch: list[Tensor]) -> Tensor:
    """The model is the result of torch.compile."""
    return squares(model(batch[0]), batch) + squares(model.other(model.encode(batch[0])), batch)


def rank_or_0() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


LAST = Cursor(2)  # a static graph is recorded in the first step, and buckets are rebuilt after it
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
}  # by name: options of DDP, and the loss


@pytest.mark.wide
@pytest.mark.slow
def test_options_of_ddp_take_effect_and_messages_are_averaged(tmp_path: Path) -> None:
    port = free_port()
    ranks = [fork(learn_with_options, rank, port, tmp_path / f"{rank}.pt") for rank in range(RANKS)]
    assert [finish(rank) for rank in ranks] == [0] * RANKS
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]
    assert [list(one) for one in found] == [list(OPTIONS)] * RANKS
    for name in OPTIONS:
        tolerance = 3e-2 if name.startswith("hook") else 1e-5
        (gradients, losses, received), *others = (one[name] for one in found)
        expected, parts = mean_of_all(name)
        for ours in (gradients, *(one for one, *_ in others)):
            assert list(ours) == list(expected)
            for parameter in ours:
                torch.testing.assert_close(ours[parameter], expected[parameter], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(losses[-1], parts, rtol=1e-5, atol=1e-5)
        assert [same for _, *same in others] == [[losses, received]] * (RANKS - 1)
        assert received == asdict(StepMessage(stop=True, written=True))


def learn_with_options(rank: int, port: int, out: Path) -> None:
    """Three steps of each case: saves the last gradients, the losses, and the last received message."""
    os.environ.update({**placed(rank, RANKS, port), "KIT_BACKEND": "gloo"})
    results = {}
    with join(seed=1) as world:
        for name, (options, given) in OPTIONS.items():
            torch.manual_seed(3)
            model: nn.Module = Net()
            used: Any = torch.compile(model, backend="aot_eager") if "compiled" in name else model
            gradients, sync = AveragedGradients(world, used, given, pairs(), options), StepSync(world)
            losses = []
            for number, parts in enumerate(gradients.batches(Cursor(), LAST.epoch + 1)):
                model.zero_grad()
                mean = gradients.backward(parts, lambda: StepMessage(stop=rank == 1, written=True, copied=rank == 0))
                step = Step(number=number, generation=1, cursor=Cursor(), ids=[], size=4)
                losses += [one.loss for one in sync.send(step, mean)]
            losses += [one.loss for one in sync.flush()]
            found = {key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None}
            results[name] = found, losses, asdict(sync.received)
        torch.save(results, out)


def pairs() -> Data:
    """One step of 6 samples, 2 per rank."""
    generator = torch.Generator().manual_seed(0)
    return Data(TensorDataset(*(torch.rand(6, width, generator=generator) for width in (5, 1))), batch=6)


def mean_of_all(name: str) -> tuple[dict[str, Tensor], float]:
    """The result of plain torch: the mean of all ranks' gradients and losses, each from its own part."""
    _, given = OPTIONS[name]
    sums: dict[str, Tensor] = {}
    losses = 0.0
    for rank in range(RANKS):
        world = World(env=RankEnv(rank=rank, world_size=RANKS), device=torch.device("cpu"))
        torch.manual_seed(3)
        model = Net()
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "rank_or_0", lambda rank=rank: rank)
            lost = given(model, next(pairs().batches(LAST, LAST.epoch + 1, world)).samples)
        if lost.requires_grad:
            lost.backward()
        losses += lost.item() / RANKS
        for key, one in model.named_parameters():
            if one.grad is not None:
                sums[key] = sums.get(key, torch.zeros(())) + one.grad / RANKS
    return {key: sums[key] for key, _ in Net().named_parameters() if key in sums}, losses
