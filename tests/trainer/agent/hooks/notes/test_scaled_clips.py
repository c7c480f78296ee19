"""Gradients that are clipped before they are unscaled, and scripts that clip otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import grad_scaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.utils import clip_grad

from kittrain.agent.hooks.notes.scaled_clips import ScaledClips
from kittrain.outcome.rank_output import CLIPPED_SCALED

TOLD = "in 20 of 20 steps, to 1 at a scale of 65536"


class Loop:
    """A model with one scaler and two optimizers.

    In a loop, ``l`` scales a loss, its pass follows; ``u`` unscales the gradients of the first optimizer, ``v`` those
    of the second one; ``c`` clips them; ``s`` is a step of the first, ``t`` one of the second; ``p`` is one without the
    scaler; ``n`` is the end of an iteration.
    """

    def __init__(self, clip: Callable[[Any], object], scaler: torch.amp.GradScaler) -> None:
        layers = [nn.Linear(3, 1), nn.Linear(3, 1)]
        self.model = nn.ModuleList(layers)
        self.optimizers = [torch.optim.SGD(one.parameters(), lr=0.001) for one in layers]
        self.scaler = scaler
        self.clip = clip

    def run(self, what: str) -> None:
        first, second = self.optimizers
        acts: dict[str, Callable[[], object]] = {
            "l": lambda: self.loss(self.scaler),
            "L": lambda: self.loss(torch.amp.GradScaler("cpu", enabled=False)),
            "u": lambda: self.scaler.unscale_(first),
            "v": lambda: self.scaler.unscale_(second),
            "c": lambda: self.clip(self.model.parameters()),
            "s": lambda: self.scaler.step(first),
            "t": lambda: self.scaler.step(second),
            "p": first.step,
            "n": self.scaler.update,
        }
        for one in what:
            acts[one]()

    def loss(self, scaler: torch.amp.GradScaler) -> None:
        loss: Any = scaler.scale(sum(layer(torch.ones(2, 3)).sum() for layer in self.model))
        loss.backward()


@pytest.fixture
def clips(monkeypatch: pytest.MonkeyPatch) -> ScaledClips:
    """The notes, with torch's functions watched."""
    for owner, names in (
        (grad_scaler.GradScaler, ("scale", "unscale_", "step")),
        (clip_grad, ("clip_grad_norm_", "clip_grad_value_")),
        (torch.nn.utils, ("clip_grad_norm_", "clip_grad_value_")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, vars(owner)[name])  # as they are afterwards
    found = ScaledClips()
    found.watch_scalers(sys.modules["torch.amp.grad_scaler"])
    found.watch_clips(sys.modules["torch.nn.utils.clip_grad"])
    return found


def to_norm(limit: Any) -> Callable[[Any], object]:
    return lambda parameters: nn.utils.clip_grad_norm_(parameters, limit)


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        ("lcsn" * 20, TOLD),
        ("llcsn" * 20, TOLD),  # accumulated
        ("lclcsn" * 20, TOLD),
        ("lcsn" * 18 + "lsn" * 2, "in 18 of 20 steps, to 1 at a scale of 65536"),
        ("lcstn" * 10, TOLD),
        ("lcsn" * 9, ""),  # too few
        ("lcsn" * 17 + "lsn" * 3, ""),
        ("lucsn" * 20, ""),
        ("lsn" * 20, ""),
        ("lscn" * 20, ""),
        ("luvcstn" * 20, ""),
        ("lucstn" * 20, ""),  # of two optimizers one is clipped
        ("lucslvctn" * 20, ""),  # which take turns
        ("lsncp" * 20, ""),  # without a scaler
        ("Lcp" * 20, ""),
        ("lc" * 20, ""),  # without a step
        ("", ""),
    ],
)
def test_what_is_told_of_a_loop(loop: str, told: str, clips: ScaledClips, capsys: pytest.CaptureFixture[str]) -> None:
    Loop(to_norm(1), torch.amp.GradScaler("cpu")).run(loop)
    clips.tell()
    assert capsys.readouterr().err == (f"note: {CLIPPED_SCALED}{told}\n" if told else "")


@pytest.mark.parametrize(
    ("clip", "told"),
    [
        (lambda parameters: nn.utils.clip_grad_norm_(parameters, max_norm=1.0, norm_type=2), True),
        (lambda parameters: nn.utils.clip_grad_norm_(parameters=parameters, max_norm=1.0), True),
        (lambda parameters: clip_grad.clip_grad_norm_(parameters, 1), True),
        (lambda parameters: clip_grad.clip_grad_value_(parameters, 0.5), True),
        (lambda parameters: nn.utils.clip_grad_value_(parameters, clip_value=0.5), True),
        (to_norm(65536 * 0.1), False),  # scaled as well
        (to_norm(float("inf")), False),  # to see the norm
        (to_norm(torch.tensor(1.0)), False),  # which is not read
    ],
)
def test_limits_are_compared_with_the_scale(
    clip: Callable[[Any], object],
    told: bool,  # noqa: FBT001  a parameter of the test
    clips: ScaledClips,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Loop(clip, torch.amp.GradScaler("cpu")).run("lcsn" * 20)
    clips.tell()
    assert bool(capsys.readouterr().err) == told


class Own(torch.amp.GradScaler):
    """One that unscales in another way."""

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        super().unscale_(optimizer)


@pytest.mark.parametrize(
    ("scaler", "told"),
    [
        (lambda: torch.amp.GradScaler("cpu"), True),
        (torch.cpu.amp.GradScaler, True),
        (lambda: torch.amp.GradScaler("cpu", init_scale=1.0), False),
        (lambda: torch.amp.GradScaler("cpu", enabled=False), False),
        (lambda: Own("cpu"), False),
    ],
)
@pytest.mark.filterwarnings("ignore:.torch.cpu.amp.GradScaler:FutureWarning")
def test_scalers_that_scale_much_are_judged(
    scaler: Callable[[], torch.amp.GradScaler],
    told: bool,  # noqa: FBT001  a parameter of the test
    clips: ScaledClips,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Loop(to_norm(1), scaler()).run("lcsn" * 20)
    clips.tell()
    assert bool(capsys.readouterr().err) == told


def test_optimizers_that_unscale_by_themselves_are_seen(clips: ScaledClips, capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop(to_norm(1), torch.amp.GradScaler("cpu"))
    loop.optimizers[0] = torch.optim.SGD(loop.model.parameters(), lr=0.001, fused=True)
    loop.run("lcsn" * 20)
    clips.tell()
    assert capsys.readouterr().err == f"note: {CLIPPED_SCALED}{TOLD}\n"


def test_the_scaler_of_sharded_models_is_not_judged() -> None:
    """It has methods of its own for both, so that neither is seen."""
    assert {"scale", "unscale_"} <= vars(ShardedGradScaler).keys()


def test_the_functions_stay_what_they_are(clips: ScaledClips) -> None:  # noqa: ARG001  it wraps them
    assert nn.utils.clip_grad_norm_ is clip_grad.clip_grad_norm_
    parameter = nn.Parameter(torch.ones(4))
    parameter.grad = torch.ones(4)
    assert nn.utils.clip_grad_norm_([parameter], 1.0) == 2
    with suppress(TypeError):
        nn.utils.clip_grad_norm_()  # type: ignore[call-arg]
        pytest.fail("without an argument")


@pytest.mark.timeout(120)
def test_a_compiled_step_clips_and_scales_as_before(clips: ScaledClips, capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop(to_norm(1), torch.amp.GradScaler("cpu"))
    compiled = torch.compile(loop.clip, backend="eager", fullgraph=True)
    parameters = [*loop.model.parameters()]
    loop.clip = lambda _: compiled(parameters)
    for _ in range(12):
        loop.run("lcsn")
    clips.tell()
    assert capsys.readouterr().err.startswith(f"note: {CLIPPED_SCALED}in 12 of 12 steps")
