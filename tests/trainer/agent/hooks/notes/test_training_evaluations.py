"""Passes without gradients in training mode are told of scripts that know no other; of no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kittrain.agent.hooks.notes.training_evaluations import TrainingEvaluations
from kittrain.outcome.rank_output import STILL_TRAINS


class Script:
    """A wrapped model, and what is noted of it."""

    def __init__(self, *layers: nn.Module, steps: int = 9) -> None:
        class Wrapper(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = nn.Sequential(nn.Linear(3, 3), *layers)

            def forward(self, x: torch.Tensor) -> Any:
                return self.module(x)

        class Model:
            def eval(self) -> None:
                pass

        self.notes = TrainingEvaluations(lambda: steps)
        self.notes.watch(SimpleNamespace(DistributedDataParallel=Wrapper))  # type: ignore[arg-type]
        self.notes.watch_modules(SimpleNamespace(Module=Model))  # type: ignore[arg-type]
        self.wrapper, self.other = Wrapper(), Model()

    def passes(self, number: int = 5) -> None:
        for _ in range(number):
            self.wrapper(torch.ones(2, 3))

    def told(self, capsys: pytest.CaptureFixture[str]) -> str:
        self.notes.tell()
        return capsys.readouterr().err


def test_an_evaluation_in_training_mode_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script(nn.BatchNorm1d(3), nn.Dropout(0.1), nn.Dropout(0.5))
    script.passes(7)
    with torch.no_grad():
        script.passes()
    script.passes(7)
    assert script.told(capsys) == f"note: {STILL_TRAINS}5 passes with 1 BatchNorm1d, 2 Dropout\n"


@pytest.mark.parametrize(
    "layers",
    [
        (),
        (nn.LayerNorm(3),),  # does the same in both modes
        (nn.Dropout(0.0),),
        (nn.BatchNorm1d(3, track_running_stats=False),),
        (nn.BatchNorm1d(3).eval(),),  # frozen
    ],
)
def test_a_model_that_does_the_same_in_both_modes_is_none(
    layers: tuple[nn.Module, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(*layers)
    with torch.no_grad():
        script.passes()
    assert script.told(capsys) == ""


def test_a_script_that_evaluates_as_it_should_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script(nn.Dropout())
    script.wrapper.eval()
    with torch.no_grad():
        script.passes()
    assert script.told(capsys) == ""


def test_nor_one_that_knows_the_other_mode(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script(nn.Dropout())
    with torch.no_grad():
        script.passes()
    script.other.eval()
    assert script.told(capsys) == ""


def test_nor_passes_before_the_first_step_or_a_single_one(capsys: pytest.CaptureFixture[str]) -> None:
    early, single = Script(nn.Dropout(), steps=0), Script(nn.Dropout())
    with torch.no_grad():
        early.passes()
        single.passes(1)
    assert early.told(capsys) == single.told(capsys) == ""


def test_a_pass_gives_what_it_gave_and_fails_as_it_failed() -> None:
    script = Script()
    with torch.no_grad():
        x = torch.ones(2, 3)
        assert torch.equal(script.wrapper(x), script.wrapper.module(x))
        with pytest.raises(RuntimeError):
            script.wrapper(torch.ones(2, 4))


def test_what_is_compiled_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """A compiler would trace the change, and make more graphs of it."""
    script = Script(nn.Dropout())
    compiler = SimpleNamespace(compile=lambda function: function)
    script.notes.watch_compiler(compiler)  # type: ignore[arg-type]
    compiler.compile(len)
    assert not hasattr(type(script.wrapper).forward, "__wrapped__")
    with torch.no_grad():
        script.passes()
    assert script.told(capsys) == ""
