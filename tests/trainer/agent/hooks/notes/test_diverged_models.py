"""Ranks whose models differ although they train one are told so; those that differ on purpose, or a little, are not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed import HashStore

from kittrain.agent.hooks.notes import diverged_models
from kittrain.agent.hooks.notes.diverged_models import C10D, PARAMETERS, DivergedModels
from kittrain.outcome.rank_output import ANOTHER_MODEL

Change = Callable[[nn.Module], object]


class Wrapped:
    """As DDP wraps a model."""

    def __init__(self, model: nn.Module, ranks: int) -> None:
        self.module = model
        self.process_group = SimpleNamespace(size=lambda: ranks)
        self.parameters_to_ignore: set[str] = set()


class Group:
    """Two ranks, which take turns in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ranks: int = 2, dtype: torch.dtype = torch.float32) -> None:
        self.rank, self.ranks = 0, ranks
        self.store: Any = HashStore()
        module = SimpleNamespace(
            get_world_size=lambda: 2, get_rank=lambda: self.rank, _get_default_store=lambda: self.store
        )
        monkeypatch.setitem(sys.modules, C10D, module)
        self.models = []
        for _ in range(2):
            torch.manual_seed(0)
            self.models.append(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(dtype))
        self.notes = [DivergedModels(), DivergedModels()]
        self.wrapped = [Wrapped(model, ranks) for model in self.models]
        for notes, wrapped in zip(self.notes, self.wrapped, strict=True):
            notes._wraps(wrapped)

    def train(self, passes: int, change: Change = lambda _: None, *, exchanged: bool = True) -> None:
        """Take passes, in each of which rank 1 does something else."""
        for _ in range(passes):
            with torch.no_grad():
                change(self.models[-1])
            for rank, notes in enumerate(self.notes):
                self.rank = rank
                notes.passed(exchanged=exchanged)

    def told(self, capsys: pytest.CaptureFixture[str]) -> str:
        for notes in self.notes:
            notes.tell()
        return capsys.readouterr().err


def faster(model: nn.Module) -> None:
    for one in model.parameters():
        one.mul_(1.001)


def test_a_model_that_is_trained_faster_is_another_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(monkeypatch)
    group.train(8, faster)
    assert group.told(capsys) == f"note: {ANOTHER_MODEL}0.weight differs, as seen after 4 backward passes\n"


def test_a_layer_that_differs_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    group = Group(monkeypatch)
    group.train(30)
    group.train(98, lambda model: model[1].bias.add_(0.01))  # type: ignore[index]
    assert group.told(capsys) == f"note: {ANOTHER_MODEL}1.bias differs, as seen after 32 backward passes\n"


@pytest.mark.parametrize(
    ("passes", "change"),
    [
        (64, lambda _: None),
        (7, faster),  # too early
        (64, lambda model: model[0].weight.mul_(1 + 1e-7)),  # rounded in another way
        (64, lambda model: model[0].bias.fill_(torch.nan)),  # which is told elsewhere
    ],
)
def test_what_is_alike_is_no_other_model(
    passes: int, change: Change, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(monkeypatch)
    group.train(passes, change)
    assert group.told(capsys) == ""


def test_what_ddp_was_told_to_ignore_may_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Experts, for example, of which each rank has its own."""
    group = Group(monkeypatch)
    for wrapped in group.wrapped:
        wrapped.parameters_to_ignore = {"1.weight", "1.bias"}
    group.train(64, lambda model: faster(model.get_submodule("1")))
    assert group.told(capsys) == ""


def test_types_of_few_digits_may_round_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(monkeypatch, dtype=torch.bfloat16)
    group.train(1, lambda model: [one.mul_(1.02) for one in model.parameters()])
    group.train(63)
    assert group.told(capsys) == ""


def test_passes_without_an_exchange_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(monkeypatch)
    group.train(64, faster, exchanged=False)
    assert group.told(capsys) == ""


def test_groups_of_fewer_ranks_have_models_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(monkeypatch, ranks=1)
    group.train(64, faster)
    assert group.told(capsys) == ""


def test_a_script_that_averages_models_now_and_then_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class ModelAverager:
        def __init__(self) -> None:
            pass

    group = Group(monkeypatch)
    for notes in group.notes:
        notes.watch_averagers(SimpleNamespace(ModelAverager=ModelAverager))  # type: ignore[arg-type]
    ModelAverager()
    group.train(64, faster)
    assert group.told(capsys) == ""


def test_ranks_that_take_different_numbers_of_steps_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Join:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    group = Group(monkeypatch)
    for notes in group.notes:
        notes.watch_joins(SimpleNamespace(Join=Join))  # type: ignore[arg-type]
    with Join():
        group.train(64, faster)
    assert group.told(capsys) == ""


def test_ranks_of_a_new_group_count_anew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One that has lived on, and one that is new, begin with equal models; what the store has is of before."""
    group = Group(monkeypatch)
    group.train(30)
    with torch.no_grad():
        for model in group.models:
            model.get_parameter("0.weight").mul_(3)
    for notes in group.notes:
        notes.formed()
    group.train(30)
    assert group.told(capsys) == ""
    group.notes[1].formed()
    group.train(1, faster)
    assert group.notes[1]._last is None, "until there is something of this group to compare with"


def test_a_store_that_is_gone_and_a_model_that_is_none_do_no_harm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(monkeypatch)
    group.store = None
    group.train(16, faster)
    group.store = SimpleNamespace()
    group.train(64, faster)
    group.models.clear()
    group.wrapped.clear()
    group.store = HashStore()
    for notes in group.notes:
        for _ in range(600):
            notes.passed(exchanged=True)
    assert group.told(capsys) == ""


def test_few_values_are_looked_at_and_the_last_parameter_is_among_them() -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(100)))
    names, values, _ = diverged_models._sample(model)
    assert len(names) == len(values) <= (PARAMETERS + 1) * diverged_models.VALUES
    assert {"0.weight", "99.bias"} <= {*names}
    assert diverged_models._sample(nn.Linear(1, 1, bias=False))[0] == ["weight"]
    assert diverged_models._sample(nn.ReLU()) == ([], [], 0.0)


def test_a_look_is_taken_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    group, looks = Group(monkeypatch), []
    monkeypatch.setattr(group.notes[0], "_look", lambda: looks.append(group.notes[0]._passes))
    group.train(100)
    assert looks == [4, 8, 16, 32, 64]
