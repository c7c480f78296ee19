"""What torch has warned of is said again; each warning is shown as it would be without that."""

from __future__ import annotations

import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from kittrain.agent.hooks.notes.torch_warnings import TorchWarnings
from kittrain.outcome.rank_output import WARNED


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was shown, by another hook than ours."""
    found: list[str] = []

    def show(message: Warning | str, *_args: Any, **_kwargs: Any) -> None:
        found.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        yield found


def told(watched: TorchWarnings, capsys: pytest.CaptureFixture[str]) -> str:
    watched.tell()
    return capsys.readouterr().err


def test_a_loss_of_values_that_are_broadcast_is_said_once(shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    watched = TorchWarnings()
    watched.watch(torch)
    for size in (3, 4):
        functional.mse_loss(torch.ones(size, 1), torch.ones(size))
    assert len(shown) == 2
    said = "Using a target size ([3]) that is different to the input size ([3, 1])"
    assert told(watched, capsys) == f"note: {WARNED}{said}\n"


def test_a_checkpointed_part_without_gradients_is_said(shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    watched = TorchWarnings()
    watched.watch(torch)
    checkpoint(torch.nn.Linear(2, 2), torch.ones(1, 2), use_reentrant=True)
    assert shown
    assert "None of the inputs have requires_grad=True" in told(watched, capsys)


def test_other_warnings_are_shown_and_not_said(shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    watched = TorchWarnings()
    watched.watch(torch)
    warnings.warn("a target size", stacklevel=1)
    assert shown == ["a target size"]
    assert told(watched, capsys) == ""


def test_where_allocations_are_traced_nothing_is_changed(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracemalloc, "is_tracing", lambda: True)
    before = warnings.showwarning
    TorchWarnings().watch(sys)
    assert warnings.showwarning is before
    assert not shown
