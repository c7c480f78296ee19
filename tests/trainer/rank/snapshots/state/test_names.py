"""Names are the plain module's under any wrapping, so each wrapping resumes from any other's snapshot exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DataParallel, DistributedDataParallel

from kittrain.rank.snapshots.state.names import Names
from tests.trainer.resumed import Learner, assert_alike
from tests.trainer.saved import weights_of


class Net(nn.Module):
    """It has a child with a wrapper's name, tied parameters, buffers of both kinds, and extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 3)
        self.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.module.weight
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.steps: dict[str, Any] = {"taken": 0, "seen": torch.zeros(2)}

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.steps = {"taken": self.steps["taken"] + 1, "seen": self.steps["seen"] + 1}
        outputs: Tensor = self.tied(self.body(self.module(inputs)).tanh())
        return outputs

    def get_extra_state(self) -> object:
        return self.steps

    def set_extra_state(self, state: object) -> None:
        assert isinstance(state, dict)
        self.steps = state


def compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager")


def compiled_in_place(net: Net) -> nn.Module:
    net.compile(backend="eager")
    return net


def compiled_in_part(net: Net) -> nn.Module:
    net.body[0] = compiled(net.body[0])
    net.tied = compiled(net.tied)
    return net


def checkpointed(net: Net) -> nn.Module:
    net.body[0] = compiled(checkpoint_wrapper(net.body[0]))
    net.tied = checkpoint_wrapper(compiled(net.tied))  # type: ignore[assignment]
    return net


WRAPPED: dict[str, Callable[[Net], nn.Module]] = {
    "plain": lambda net: net,
    "compiled": compiled,
    "compiled in place": compiled_in_place,
    "compiled in part": compiled_in_part,
    "DDP": DistributedDataParallel,
    "compiled DDP": lambda net: compiled(DistributedDataParallel(net)),
    "DDP of a compiled one": lambda net: DistributedDataParallel(compiled(net)),
    "DataParallel": DataParallel,
    "checkpointed": checkpointed,
}
PLAIN = list(Net().state_dict())


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """DDP needs a process group."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_names_are_the_plain_modules(wrap: Callable[[Net], nn.Module]) -> None:
    model = wrap(Net())
    names = Names(model)
    assert [names.bare(name) for name in model.state_dict()] == PLAIN
    parameters = [name for name, _ in Net().named_parameters()]
    assert [names.bare(name) for name, _ in model.named_parameters()] == parameters


def test_a_childs_name_alone_does_not_make_it_a_wrapper() -> None:
    assert [Names(Net()).bare(name) for name in Net().state_dict()] == PLAIN
    nested = nn.ModuleDict({"_orig_mod_": nn.ModuleDict({"module": Net()})})
    assert [Names(nested).bare(name) for name in nested.state_dict()] == list(nested.state_dict())


# Each wrapping saves and resumes at least once.
PAIRS = [
    pytest.param(one, other, marks=pytest.mark.wide if other == "plain" and one != "compiled DDP" else ())
    for one, other in product(WRAPPED, WRAPPED)
    if "plain" in (one, other)
]


@pytest.mark.parametrize(("saved", "resumed"), PAIRS)
def test_any_wrapping_resumes_from_any_others_snapshot(tmp_path: Path, saved: str, resumed: str) -> None:
    def learner(folder: Path, wrapped: str) -> Learner:
        torch.manual_seed(0)
        net = Net()
        return Learner(folder, WRAPPED[wrapped](net), lambda model: torch.optim.AdamW(model.parameters()), net)

    undisturbed = learner(tmp_path / "undisturbed", "plain")
    undisturbed.train(5)
    first = learner(tmp_path / "run", saved)
    first.train(3)
    first.save()
    second = learner(tmp_path / "run", resumed)
    assert second.step == 3
    second.train(5)
    assert_alike(second, undisturbed)
    assert second.plain.steps["taken"] == 5
    second.finish()
    (path,) = (tmp_path / "run").glob("step-*3-*")
    for weights in (torch.load(tmp_path / "run" / "model.pt", weights_only=True), weights_of(path)):
        Net().load_state_dict(weights)
