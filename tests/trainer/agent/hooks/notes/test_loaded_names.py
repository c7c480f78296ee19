"""State dicts that are loaded with ``strict=False``, and of which nothing is loaded."""

from __future__ import annotations

import copy
import types
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from kittrain.agent.hooks.notes.loaded_names import LoadedNames
from kittrain.outcome.rank_output import NOTHING_LOADED, OWN_LOADED, trains_nothing


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> LoadedNames:
    monkeypatch.setattr(nn.Module, "load_state_dict", nn.Module.load_state_dict)  # is restored
    found = LoadedNames(lambda: 9)
    found.watch(types.SimpleNamespace(Module=nn.Module))  # type: ignore[arg-type]
    return found


def saved(prefix: str = "") -> OrderedDict[str, Any]:
    return OrderedDict({f"{prefix}{name}": value for name, value in nn.Linear(2, 1).state_dict().items()})


def test_a_prefix_in_all_names_is_told(names: LoadedNames, capsys: pytest.CaptureFixture[str]) -> None:
    result = nn.Linear(2, 1).load_state_dict(saved("module."), strict=False)
    assert result.missing_keys == ["weight", "bias"], "the script gets what torch returns"
    names.tell()
    told = f"{NOTHING_LOADED}Linear's 2 values: it has weight, and the file module.weight"
    assert capsys.readouterr().err == f"note: {told}\n"
    assert trains_nothing([f"note: {told}"]) == told


@pytest.mark.parametrize(
    "loads",
    [
        [saved()],
        [{**saved(), "more": torch.zeros(1)}],
        [{"weight": torch.zeros(1, 2), "head.bias": torch.zeros(1)}],  # another head
        [{}],  # nothing to load, on purpose
        [saved("module."), saved()],  # tried first, as some libraries do
        [],
    ],
)
def test_what_is_loaded_in_part_is_not_told(
    names: LoadedNames, loads: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(2, 1)
    for one in loads:
        model.load_state_dict(one, strict=False)
    names.tell()
    assert capsys.readouterr().err == ""


def test_errors_are_torchs(names: LoadedNames, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="Missing key"):
        nn.Linear(2, 1).load_state_dict(saved("module."))

    class Own(nn.Linear):
        def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
            super().load_state_dict(*args, **kwargs)

    assert Own(2, 1).load_state_dict(saved()) is None
    names.tell()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", ["by position", "by name"])
def test_a_state_dict_of_the_models_own_tensors_is_told(
    how: str, names: LoadedNames, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was kept as that of the best epoch, without a copy."""
    model = nn.Linear(2, 1)
    best = model.state_dict()
    model.load_state_dict(best) if how == "by position" else model.load_state_dict(state_dict=best)
    names.tell()
    assert capsys.readouterr().err == f"note: {OWN_LOADED}Linear after 9 steps\n"


def test_copies_and_models_without_parameters_are_not_told(
    names: LoadedNames, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(2, 1)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    nn.Linear(2, 1).load_state_dict(model.state_dict())  # of another model, as a target network's
    model.load_state_dict({**copy.deepcopy(model.state_dict()), "bias": model.bias})
    nn.ReLU().load_state_dict({})
    monkeypatch.setattr(names, "_steps", lambda: 0)
    model.load_state_dict(model.state_dict())  # before the first step there is nothing to restore
    names.tell()
    assert capsys.readouterr().err == ""
