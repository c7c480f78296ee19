"""Loops that zero gradients before a step has used them, or never; and those that look alike, and are right."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from kittrain.agent.hooks.notes.zeroed_gradients import ZeroedGradients
from kittrain.outcome.rank_output import NEVER_ZEROED, ZEROED_UNUSED


class Loop:
    """A model, its optimizer and the notes about them.

    In a loop, ``z`` zeroes the gradients, ``b`` is a backward pass, ``k`` one that keeps its graph, ``a`` one that
    gives a gradient to the samples as well, ``h`` zeroes by hand, and ``s`` is a step.
    """

    def __init__(self) -> None:
        self.notes = ZeroedGradients(lambda: None)
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)
        self.optimizer.register_step_post_hook(lambda optimizer, *_: self.notes.called(optimizer))

    def run(self, what: str) -> None:
        for one in what:
            if one == "z":
                self.notes._zeroes()
                self.optimizer.zero_grad()
            elif one == "h":
                for parameter in self.model.parameters():
                    parameter.grad = None
            elif one == "s":
                self.optimizer.step()
            else:
                self.backward(self.model(torch.ones(2, 3, requires_grad=one == "a")).sum(), keeps=one == "k")

    def backward(self, loss: Tensor, *, keeps: bool = False) -> None:
        self.notes.begins(loss, keeps_graph=keeps)
        loss.backward()
        self.notes.passed()


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        ("zbzbzbzbs" * 10, f"{ZEROED_UNUSED}10 steps have used the last of up to 4 backward passes each"),
        ("zbzbzbs" * 10 + "zbs", f"{ZEROED_UNUSED}10 steps have used the last of up to 3 backward passes each"),
        ("zbzbzbs" * 7, ""),  # too few
        ("zbbbbs" * 20, ""),
        ("bbbbsz" * 20, ""),
        ("zbs" * 40, ""),
        ("zbzbs" * 40, ""),  # a step that looks ahead: SAM
        ("zkzkzbs" * 20, ""),  # gradients of several tasks, of one forward pass
        ("zazazbs" * 20, ""),  # adversarial examples
        ("zbs" * 20 + "zazazbs" * 200, ""),  # after a warm-up
        ("zbzbzbs" * 20 + "zbs" * 3, ""),
        ("zbs" * 20 + "zbzbzbzbzbzb" * 50 + "s" + "zbs" * 20, ""),  # something is measured in between
        ("zbzb" + "zbs" * 20, ""),  # steps that a scaler has skipped
        ("bs" * 40, f"{NEVER_ZEROED}each of 40 steps has used those of all before it"),
        ("bbs" * 40, f"{NEVER_ZEROED}each of 40 steps has used those of all before it"),
        ("hbs" * 40, ""),
        ("bsh" * 40, ""),
        ("bs" * 7, ""),  # too few
        ("z" + "bs" * 40, ""),  # it knows how
        ("b" * 40, ""),
        ("s" * 40, ""),
        ("", ""),
    ],
)
def test_what_is_told_of_a_loop(loop: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    trained = Loop()
    trained.run(loop)
    trained.notes.tell()
    assert capsys.readouterr().err == (f"note: {told}\n" if told else "")


def test_nothing_is_told_of_several_optimizers(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a GAN discard what the other one's pass has left."""
    first, second = Loop(), Loop()
    second.notes = first.notes
    for _ in range(20):
        first.run("zbzbzbs")
        second.run("zbzbzbs")
    first.notes.tell()
    assert capsys.readouterr().err == ""


def test_calls_are_seen_of_optimizers_and_models() -> None:
    notes = ZeroedGradients(lambda: None)

    class Optimizer:
        def zero_grad(self, *, set_to_none: bool = True) -> None:
            pass

    class Module:
        def zero_grad(self) -> None:
            pass

    notes.watch_optimizers(SimpleNamespace(Optimizer=Optimizer))  # type: ignore[arg-type]
    notes.watch_modules(SimpleNamespace(Module=Module))  # type: ignore[arg-type]
    Optimizer().zero_grad(set_to_none=False)
    Module().zero_grad()
    assert notes._zeroed == 2


def test_an_optimizer_of_the_scripts_own_may_lack_anything(capsys: pytest.CaptureFixture[str]) -> None:
    notes = ZeroedGradients(lambda: None)
    for _ in range(40):
        notes.begins(object(), keeps_graph=False)
        notes.passed()
        notes.called(notes)
    notes.tell()
    assert capsys.readouterr().err == ""
