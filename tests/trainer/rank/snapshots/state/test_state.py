"""The captured state has torch's own names and values, and any state is restored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict

from kittrain.rank.snapshots.files.layout import structure
from kittrain.rank.snapshots.files.tree import dump, join, load, split
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError
from kittrain.rank.snapshots.state.state import State, StateError, frozen


class Tied(nn.Module):
    """Two names for one parameter, a saved buffer and one that is not saved."""

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
    """Set the state as a restore does."""
    targets = state.targets(structure(tensors), rest)
    for name, target in targets.items():
        target.detach().copy_(tensors[name])
    state.apply(targets, rest)


@pytest.mark.parametrize("make", [plain, Tied])
@pytest.mark.parametrize(
    "optimize",
    [
        two_groups,
        lambda model: torch.optim.SGD(model.parameters()),
        lambda model: torch.optim.Adagrad(model.parameters()),
    ],
)
def test_the_state_equals_torchs_and_is_restored(make: Any, optimize: Any) -> None:
    state = trained(model := make(), optimize(model))
    tensors, rest = state.capture()
    model_state, optimizer_state = get_state_dict(state.model, state.optimizers["optimizer"])
    whole = join(tensors, load(dump(rest)))
    torch.testing.assert_close(whole["model"], dict(model_state), rtol=0, atol=0)
    assert whole["optimizer"]["param_groups"] == optimizer_state["param_groups"]
    torch.testing.assert_close(whole["optimizer"]["state"], optimizer_state["state"], rtol=0, atol=0)
    other = make()
    fresh = State(model=other, optimizer=(again := optimize(other)), scheduler=None)
    set_to(fresh, tensors, load(dump(rest)))
    torch.testing.assert_close(other.state_dict(), state.model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(
        again.state_dict()["state"], state.optimizers["optimizer"].state_dict()["state"], rtol=0, atol=0
    )
    assert again.state_dict()["param_groups"] == state.optimizers["optimizer"].state_dict()["param_groups"]


def test_any_nesting_is_split_and_joined() -> None:
    tree = {"a": [torch.ones(2), (1, torch.zeros(1))], 3: Counter({5: 1}), "none": None, "text": "x"}
    tensors, rest, _ = split(tree)
    assert sorted(tensors) == ["a/0", "a/1/1"]
    back = join(tensors, load(dump(rest)))
    assert repr(back) == repr(tree)


def test_the_captured_rest_does_not_change() -> None:
    state = trained(model := plain(), torch.optim.SGD(model.parameters(), lr=1.0))
    _, rest = state.capture()
    before = dump(rest)
    state.optimizers["optimizer"].param_groups[0]["lr"] = 9.0
    state.optimizers["optimizer"].param_groups[0]["params"].pop()
    assert dump(rest) == before


class Schedule:
    """A user-defined class."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Schedule(), r"optimizer/param_groups/0/schedule is <.*Schedule object.*cannot restore"),
        (lambda step: step, r"optimizer/param_groups/0/schedule is <function"),
        ({"deep": [1, Schedule()]}, r"optimizer/param_groups/0/schedule/deep/1 is <.*Schedule object"),
    ],
)
def test_an_unloadable_value_is_an_error_when_captured(value: object, message: str) -> None:
    model = plain()
    state = State(model=model, optimizer=torch.optim.SGD([{"params": model.parameters(), "schedule": value}]))
    with pytest.raises(StateError, match=message):
        state.capture()


def test_a_class_in_torchs_safe_globals_is_saved() -> None:
    model = plain()
    state = State(model=model, optimizer=torch.optim.SGD([{"params": model.parameters(), "schedule": Schedule()}]))
    with torch.serialization.safe_globals([Schedule]):
        _, rest = state.capture()
        assert isinstance(load(dump(rest))["optimizer"]["param_groups"][0]["schedule"], Schedule)


def test_an_optimizer_parameter_outside_the_model_is_an_error() -> None:
    model, head = plain(), nn.Linear(1, 7)
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": head.parameters()}])
    with pytest.raises(StateError, match=r"parameter group 1 of the optimizer has a parameter of shape \(7, 1\)"):
        State(model=model, optimizer=optimizer).capture()


def test_other_parameter_groups_are_an_error_before_any_change() -> None:
    model = plain()
    state = trained(model, torch.optim.SGD(model.parameters(), momentum=0.9))
    tensors, rest = state.capture()
    before = {name: one.clone() for name, one in tensors.items()}
    for groups, message in [
        ([{"params": [one]} for one in model.parameters()], "has 1 parameter groups, and this one 6"),
        ([{"params": list(model.parameters())[1:]}], "other parameters in group 0, such as 0.weight"),
    ]:
        other = State(model=model, optimizer=torch.optim.SGD(groups, momentum=0.9))
        with pytest.raises(IncompatibleError, match=message):
            other.targets(structure(tensors), rest)
    torch.testing.assert_close(state.capture()[0], before, rtol=0, atol=0)


def test_existing_tensors_are_filled_in_place_and_missing_ones_created() -> None:
    model = plain()
    tensors, rest = trained(model, torch.optim.Adam(model.parameters())).capture()
    fresh = plain()
    state = State(model=fresh, optimizer=torch.optim.Adam(fresh.parameters()))
    targets = state.targets(structure(tensors), rest)
    assert targets["model/0.weight"] is fresh[0].weight
    assert not state.optimizers["optimizer"].state
    set_to(state, tensors, rest)
    again = state.targets(structure(tensors), rest)
    assert again["optimizer/state/0.weight/exp_avg"] is state.optimizers["optimizer"].state[fresh[0].weight]["exp_avg"]


def test_optimizer_state_keeps_a_type_other_than_the_parameters() -> None:
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


@pytest.mark.parametrize("more", [{}, {"mean": torch.zeros(1)}], ids=["plain", "with a tensor"])
def test_a_state_that_its_object_changes_later_is_kept_as_it_was(more: dict[str, Any]) -> None:
    live = {"taken": 3, "order": [1, 2], **more}
    kept = frozen(live)
    live["taken"] = 4
    live["order"].append(3)
    for one in more.values():
        one.add_(1)
    assert kept == {"taken": 3, "order": [1, 2], **{name: torch.zeros(1) for name in more}}
