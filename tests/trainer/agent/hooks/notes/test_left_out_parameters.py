"""Layers that DDP or the optimizer was not given; and those that look alike, and are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kittrain.agent.hooks.notes.left_out_parameters import LeftOutParameters
from kittrain.outcome.rank_output import NOT_GIVEN, NOT_OPTIMIZED, NOT_REGISTERED


class Net(nn.Module):
    """Layers that it knows, and others in a list and a dict."""

    def __init__(self, hidden: Any = ()) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 1)
        self.others = hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        for layer in self.others.values() if isinstance(self.others, dict) else self.others:
            x = layer(x)
        result: torch.Tensor = self.head(x)
        return result


class Wrapped:
    """As DDP wraps a model, of as many ranks."""

    def __init__(self, model: nn.Module, ranks: int) -> None:
        self.module = model
        self.process_group = self
        self.ranks = ranks

    def size(self) -> int:
        return self.ranks


def told(
    model: Net,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Net], object] = lambda _: None,
    *,
    ranks: int = 2,
    steps: int = 8,
    more: Callable[[Net], list[nn.Parameter]] = lambda _: [],
) -> str:
    """What is said of a model that is changed after it was wrapped, and trained."""
    notes = LeftOutParameters()
    wrapped = Wrapped(model, ranks)
    notes._wraps(wrapped)
    change(model)
    optimizer = torch.optim.SGD([*model.parameters(), *more(model)], lr=0.01)
    for _ in range(steps):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        notes.called(optimizer)
    notes.tell()
    return capsys.readouterr().err.removeprefix("note: ").rstrip("\n")


def replace(model: Net) -> None:
    model.head = nn.Linear(3, 1)


def test_a_layer_that_is_put_in_or_unfrozen_later_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(Net(), capsys, replace) == f"{NOT_GIVEN}head.weight, head.bias"
    frozen = Net()
    frozen.body.requires_grad_(requires_grad=False)
    assert told(frozen, capsys, lambda model: model.requires_grad_()) == f"{NOT_GIVEN}body.weight, body.bias"
    loaded = Net()
    state = {name: torch.zeros_like(one) for name, one in loaded.state_dict().items()}
    found = told(loaded, capsys, lambda model: model.load_state_dict(state, assign=True))
    assert found == f"{NOT_GIVEN}body.weight, body.bias, head.weight and 1 more"


def test_layers_in_a_list_or_a_dict_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    model = Net([nn.Linear(3, 3), nn.Linear(3, 3)])
    assert told(model, capsys) == f"{NOT_REGISTERED}others[0] (in a list of Net), others[1] (in a list of Net)"
    assert told(Net({"a": nn.Linear(3, 3)}), capsys) == f"{NOT_REGISTERED}others['a'] (in a dict of Net)"
    five = Net(tuple(nn.Linear(3, 3) for _ in range(5)))
    assert told(five, capsys).endswith(" others[2] (in a tuple of Net) and 2 more")
    assert told(Net([nn.Linear(3, 3)]), capsys, ranks=1), "also on one rank"


def test_what_is_right_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(Net(), capsys) == ""
    assert told(Net(), capsys, replace, ranks=1) == "", "nothing has to be averaged"
    assert told(Net(), capsys, replace, steps=7) == "", "too early"
    assert told(Net(), capsys, lambda model: model.head.requires_grad_(requires_grad=False)) == "", "frozen later"
    model = Net([nn.Linear(3, 3)])
    assert told(model, capsys, more=lambda model: [*model.others[0].parameters()]) == "", "the optimizer has them"
    teacher = nn.Linear(3, 3).requires_grad_(requires_grad=False)
    assert told(Net([teacher]), capsys) == "", "kept from the model on purpose"
    known = Net()
    known.others = [known.body]
    assert told(known, capsys) == "", "another name for what it knows"
    assert told(Net({"numbers": [1, 2]}), capsys, lambda model: setattr(model, "others", [])) == ""


def test_an_optimizer_that_has_a_layer_which_was_replaced_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def trained(*, early: bool, idle: tuple[nn.Parameter, ...] = ()) -> str:
        notes, model = LeftOutParameters(), Net()
        before = [*model.parameters()]
        replace(model)
        wrapped = Wrapped(model, 1)
        notes._wraps(wrapped)
        optimizer = torch.optim.SGD([*(before if early else model.body.parameters()), *idle], lr=0.01)
        for _ in range(8):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            notes.called(optimizer)
        notes.tell()
        return capsys.readouterr().err.removeprefix("note: ").rstrip("\n")

    assert trained(early=True) == f"{NOT_OPTIMIZED}head.weight, head.bias"
    assert trained(early=False) == "", "the head may be left as it is on purpose"
    other = nn.Parameter(torch.ones(1))
    other.grad = torch.zeros(1)
    assert trained(early=False, idle=(other,)) == "", "of another model"


def test_a_model_that_is_wrapped_again_has_all_its_layers(capsys: pytest.CaptureFixture[str]) -> None:
    notes, model = LeftOutParameters(), Net()
    first = Wrapped(model, 2)
    notes._wraps(first)
    replace(model)
    second = Wrapped(model, 2)
    notes._wraps(second)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(16):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        notes.called(optimizer)
    notes.tell()
    assert capsys.readouterr().err == ""


def test_nothing_is_looked_at_without_ddp_nor_between_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, kept = LeftOutParameters(), Wrapped(Net(), 2)
    looked: list[Wrapped] = []

    def look(wrapper: Wrapped) -> str:
        looked.append(wrapper)
        return ""

    monkeypatch.setattr(notes, "_look", look)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    for _ in range(20):
        notes.called(optimizer)
    assert not looked
    notes._wraps(kept)
    for _ in range(40):
        notes.called(optimizer)
    assert looked == [kept] * 3
