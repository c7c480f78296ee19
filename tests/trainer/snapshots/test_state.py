"""The state by names is torch's own, and comes back whatever it is made of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict

from kittrain.snapshots.layout import structure
from kittrain.snapshots.snapshot import ForeignError
from kittrain.snapshots.state import State, StateError
from kittrain.snapshots.tree import dump, join, load, split


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


def plain() -> Any:
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


def set_to(state: State, tensors: dict[str, Tensor], rest: Any) -> None:
    """As a restore does."""
    targets = state.targets(structure(tensors), rest)
    for name, target in targets.items():
        target.detach().copy_(tensors[name])
    state.adopt(targets, rest)


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
    set_to(fresh, tensors, load(dump(rest)))
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


class Schedule:
    """A class of a user's own."""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Schedule(), r"optimizer/param_groups/0/schedule is <.*Schedule object.*could not give it back"),
        (lambda step: step, r"optimizer/param_groups/0/schedule is <function"),
        ({"deep": [1, Schedule()]}, r"optimizer/param_groups/0/schedule/deep/1 is <.*Schedule object"),
    ],
)
def test_what_could_not_be_loaded_is_told_before_it_is_saved(value: object, told: str) -> None:
    model = plain()
    state = State(model=model, optimizer=torch.optim.SGD([{"params": model.parameters(), "schedule": value}]))
    with pytest.raises(StateError, match=told):
        state.capture()


def test_a_class_that_torch_was_told_to_trust_is_saved() -> None:
    model = plain()
    state = State(model=model, optimizer=torch.optim.SGD([{"params": model.parameters(), "schedule": Schedule()}]))
    with torch.serialization.safe_globals([Schedule]):
        _, rest = state.capture()
        assert isinstance(load(dump(rest))["optimizer"]["param_groups"][0]["schedule"], Schedule)


def test_a_parameter_that_no_snapshot_would_hold_is_told() -> None:
    model, head = plain(), nn.Linear(1, 7)
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": head.parameters()}])
    with pytest.raises(StateError, match=r"parameter group 1 of the optimizer has a parameter of shape \(7, 1\)"):
        State(model=model, optimizer=optimizer).capture()


def test_other_parameter_groups_are_told_before_anything_is_changed() -> None:
    model = plain()
    state = trained(model, torch.optim.SGD(model.parameters(), momentum=0.9))
    tensors, rest = state.capture()
    before = {name: one.clone() for name, one in tensors.items()}
    for groups, told in [
        ([{"params": [one]} for one in model.parameters()], "has 1 parameter groups, and this one 6"),
        ([{"params": list(model.parameters())[1:]}], "other parameters in group 0, such as 0.weight"),
    ]:
        other = State(model=model, optimizer=torch.optim.SGD(groups, momentum=0.9))
        with pytest.raises(ForeignError, match=told):
            other.targets(structure(tensors), rest)
    torch.testing.assert_close(state.capture()[0], before, rtol=0, atol=0)


def test_what_is_trained_is_filled_in_place_and_only_what_is_missing_is_made() -> None:
    model = plain()
    tensors, rest = trained(model, torch.optim.Adam(model.parameters())).capture()
    fresh = plain()
    state = State(model=fresh, optimizer=torch.optim.Adam(fresh.parameters()))
    targets = state.targets(structure(tensors), rest)
    assert targets["model/0.weight"] is fresh[0].weight
    assert not state.optimizer.state
    set_to(state, tensors, rest)
    again = state.targets(structure(tensors), rest)
    assert again["optimizer/state/0.weight/exp_avg"] is state.optimizer.state[fresh[0].weight]["exp_avg"]


def test_an_optimizers_state_keeps_its_type_whatever_the_parameters_is() -> None:
    model = plain().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        optimizer.state[parameter]["master"] = torch.rand(parameter.shape, dtype=torch.float32)
    optimizer.state["shared"] = {"steps": 3}  # type: ignore[index]
    tensors, rest = State(model=model, optimizer=optimizer).capture()
    other = plain().bfloat16()
    again = torch.optim.SGD(other.parameters(), lr=0.1)
    set_to(State(model=other, optimizer=again), tensors, load(dump(rest)))
    assert again.state["shared"] == {"steps": 3}  # type: ignore[index]
    assert torch.equal(again.state[other[0].weight]["master"], optimizer.state[model[0].weight]["master"])
