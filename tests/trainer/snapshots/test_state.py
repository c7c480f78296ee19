"""The state by names is torch's own, and comes back whatever it is made of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict

from trainer.snapshots.state import State, dump, join, load, split


class Tied(nn.Module):
    """Two names for one parameter, and a buffer that is saved beside one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.tensor(2))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(inputs))
        return outputs


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(4, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    return State(model=model, optimizer=optimizer, scheduler=scheduler)


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.5}, {"params": others}]
    return torch.optim.AdamW(groups, lr=0.1)


@pytest.mark.parametrize("make", [plain, Tied])
@pytest.mark.parametrize(
    "optimize",
    [
        two_groups,
        lambda model: torch.optim.SGD(model.parameters()),
        lambda model: torch.optim.Adagrad(model.parameters()),
    ],
)
def test_it_is_what_torch_saves_by_name_and_comes_back(make: Any, optimize: Any) -> None:
    state = trained(model := make(), optimize(model))
    tensors, rest = state.capture()
    model_state, optimizer_state = get_state_dict(state.model, state.optimizer)
    whole = join(tensors, load(dump(rest)))
    torch.testing.assert_close(whole["model"], dict(model_state), rtol=0, atol=0)
    assert whole["optimizer"]["param_groups"] == optimizer_state["param_groups"]
    torch.testing.assert_close(whole["optimizer"]["state"], optimizer_state["state"], rtol=0, atol=0)
    other = make()
    fresh = State(model=other, optimizer=(again := optimize(other)), scheduler=None)
    fresh.load({name: tensor.clone() for name, tensor in tensors.items()}, load(dump(rest)))
    torch.testing.assert_close(other.state_dict(), state.model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(again.state_dict()["state"], state.optimizer.state_dict()["state"], rtol=0, atol=0)
    assert again.state_dict()["param_groups"] == state.optimizer.state_dict()["param_groups"]


def test_any_nesting_comes_back_without_its_tensors() -> None:
    tree = {"a": [torch.ones(2), (1, torch.zeros(1))], 3: Counter({5: 1}), "none": None, "text": "x"}
    tensors, rest = split(tree)
    assert sorted(tensors) == ["a/0", "a/1/1"]
    back = join(tensors, load(dump(rest)))
    assert repr(back) == repr(tree)


def test_the_rest_is_of_its_moment() -> None:
    state = trained(model := plain(), torch.optim.SGD(model.parameters(), lr=1.0))
    _, rest = state.capture()
    before = dump(rest)
    state.optimizer.param_groups[0]["lr"] = 9.0
    state.optimizer.param_groups[0]["params"].pop()
    assert dump(rest) == before


def test_what_is_to_be_filled_leaves_the_optimizer_as_it_was() -> None:
    model = plain()
    state = State(model=model, optimizer=torch.optim.AdamW(model.parameters()))
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    assert any(name.endswith("exp_avg") for name in state.like())
    assert not state.optimizer.state
    assert all(torch.equal(now, before) for now, before in zip(model.parameters(), weights, strict=True))
