"""Loops in the styles of many scripts: wherever one is cut short, it ends as if it had not been, or does not go on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer
from torch.utils.data import TensorDataset

from kittrain import Data, Run, run_rounds
from kittrain.rank.snapshots.read.survivors import StatesDifferError
from kittrain.rank.training.live_run import AFTER_STEP
from kittrain.rank.training.loop_changes import Untouched
from kittrain.rank.world.data import Batch
from tests.trainer import outlived
from tests.trainer.outlived import CLOSED

EPOCHS, STEPS_PER_EPOCH = 2, 2


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    outlived.outlive(monkeypatch)


class Loop:
    """A loop that is cut short once: at one of its points, where a script may wait for other ranks."""

    def __init__(self, cut: int = 0) -> None:
        torch.manual_seed(1)
        self.cut = cut
        self.points: list[str] = []
        self.rounds = 0
        self.steps: list[int] = []
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        samples = TensorDataset(torch.rand(8 * STEPS_PER_EPOCH, 3, generator=torch.Generator().manual_seed(2)))
        self.data = Data(samples, batch=8, seed=3)
        self.optimizer: Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.others: dict[str, Any] = {}
        self.build()

    def build(self) -> None:
        """What a style has besides."""

    def at(self, point: str) -> None:
        self.points.append(point)
        if len(self.points) == self.cut:
            raise RuntimeError(CLOSED)

    def train(self, run: Run) -> None:
        self.rounds += 1
        for epoch in run.epochs(EPOCHS):
            for batch in run.batches(self.data):
                self.step(run, batch)
            self.end(epoch)

    def step(self, run: Run, batch: Batch) -> None:
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.at("backward")
        self.optimizer.step()
        run.step(loss)

    def loss(self, batch: Batch) -> Tensor:
        self.at("forward")
        loss: Tensor = self.model(batch.samples[0]).square().mean()
        return loss

    def end(self, epoch: int) -> None:
        self.at(f"end of epoch {epoch}")

    def run(self) -> list[Any]:
        """What it leaves."""
        objects = {"model": self.model, "optimizer": self.optimizer, "data": self.data, **self.others}
        run_rounds(outlived.world(), self.train, on_step=lambda step: self.steps.append(step.number), **objects)
        states = {name: one.state_dict() for name, one in objects.items() if name != "data"}
        modes = [one.training for one in self.model.modules()]
        return [plain(states), self.steps, modes, torch.is_grad_enabled()]


def plain(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return {name: plain(one) for name, one in state.items() if not callable(one)}
    return [plain(one) for one in state] if isinstance(state, list | tuple) else state


class SeveralSchedulers(Loop):
    """One of several, which has no epoch of its own."""

    def build(self) -> None:
        parts: list[LRScheduler] = [
            lr_scheduler.LinearLR(self.optimizer, 0.1, 1, 4),
            lr_scheduler.ExponentialLR(self.optimizer, 0.9),
        ]
        self.others["scheduler"] = lr_scheduler.ChainedScheduler(parts, optimizer=self.optimizer)

    def end(self, epoch: int) -> None:
        self.others["scheduler"].step()
        super().end(epoch)


class MovesBeforeItEvaluates(Loop):
    def build(self) -> None:
        self.others["scheduler"] = lr_scheduler.OneCycleLR(self.optimizer, 0.5, total_steps=10)

    def step(self, run: Run, batch: Batch) -> None:
        super().step(run, batch)
        self.others["scheduler"].step()
        self.at("evaluation")


class MovesAfterItEvaluates(MovesBeforeItEvaluates):
    """By parts of an epoch, so that the scheduler's epoch does not tell."""

    def build(self) -> None:
        self.others["scheduler"] = lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, 2)

    def step(self, run: Run, batch: Batch) -> None:
        Loop.step(self, run, batch)
        self.at("evaluation")
        self.others["scheduler"].step(run.steps_done / STEPS_PER_EPOCH)


class RateByHand(Loop):
    def step(self, run: Run, batch: Batch) -> None:
        self.optimizer.param_groups[0]["lr"] *= 0.9
        super().step(run, batch)


class RateByHandAfterwards(Loop):
    def step(self, run: Run, batch: Batch) -> None:
        super().step(run, batch)
        self.at("evaluation")
        self.optimizer.param_groups[0]["lr"] *= 0.9


class RateInATensor(Loop):
    def build(self) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=torch.tensor(0.1))

    def step(self, run: Run, batch: Batch) -> None:
        self.optimizer.param_groups[0]["lr"].mul_(0.9)
        super().step(run, batch)


class Scaled(Loop):
    """Some of its gradients are infinite."""

    def build(self) -> None:
        self.others["scaler"] = GradScaler("cpu", init_scale=2.0**116, growth_interval=2)

    def step(self, run: Run, batch: Batch) -> None:
        scaler: GradScaler = self.others["scaler"]
        self.optimizer.zero_grad()
        loss = self.loss(batch) * 1e3
        scaler.scale(loss).backward()
        scaler.unscale_(self.optimizer)
        self.at("unscaled")
        skips = any(not one.grad.isfinite().all() for one in self.model.parameters() if one.grad is not None)
        scaler.step(self.optimizer)
        scaler.update()
        self.at("skipped" if skips else "updated")
        run.step(loss)


class Unfreezes(Loop):
    def build(self) -> None:
        self.optimizer = torch.optim.SGD(self.model[1:].parameters(), lr=0.1, momentum=0.9)

    def end(self, epoch: int) -> None:
        if epoch == 0:
            self.optimizer.add_param_group({"params": list(self.model[0].parameters()), "lr": 0.05})
        super().end(epoch)


class Hooked(Loop):
    """By hooks that the function registers in each round."""

    def train(self, run: Run) -> None:
        weight = self.model.get_parameter("0.weight")
        weight.register_hook(lambda gradient: gradient * 0.5)
        weight.register_post_accumulate_grad_hook(self._scale)
        self.model[0].register_forward_hook(lambda _module, _inputs, output: output * 1.5)
        self.model[2].register_full_backward_hook(self._shrink)
        self.optimizer.register_step_pre_hook(lambda *_: self._scale(self.model.get_parameter("2.weight")))
        super().train(run)

    @staticmethod
    def _shrink(_module: nn.Module, inputs: Any, _outputs: Any) -> Any:
        return (inputs[0] * 0.7,)

    @staticmethod
    def _scale(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(0.9)


class LeavesModes(Loop):
    """An evaluation after each step that is not left by its own end."""

    def step(self, run: Run, batch: Batch) -> None:
        super().step(run, batch)
        self.model.eval()
        torch.set_grad_enabled(False)
        self.at("evaluation")
        torch.set_grad_enabled(True)
        self.model.train()


class TwoOptimizers(Loop):
    """Which take turns: between the two, the step is half done."""

    def build(self) -> None:
        self.others["other"] = torch.optim.SGD(self.model[2].parameters(), lr=0.1)
        self.optimizer = torch.optim.SGD(self.model[:2].parameters(), lr=0.1)

    def step(self, run: Run, batch: Batch) -> None:
        self.others["other"].zero_grad()
        self.loss(batch).backward()
        self.others["other"].step()
        self.at("between")
        super().step(run, batch)


REFUSED = {  # besides in the first evaluation after a step: what else the loop does there is not known yet
    MovesAfterItEvaluates: {"evaluation"},
    RateByHandAfterwards: {"evaluation"},
    Scaled: {"updated"},
    TwoOptimizers: {"between", "forward", "backward"},
}


@pytest.mark.parametrize(
    "style",
    [
        *(SeveralSchedulers, MovesBeforeItEvaluates, MovesAfterItEvaluates, RateByHand, RateByHandAfterwards),
        *(RateInATensor, Scaled, Unfreezes, Hooked, LeavesModes, TwoOptimizers),
    ],
)
def test_a_loop_that_is_cut_short_ends_as_if_it_had_not_been(style: type[Loop]) -> None:
    whole = style()
    expected = whole.run()
    assert whole.steps == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    refused = set()
    known = whole.points.index("evaluation") + 1 if "evaluation" in whole.points else 0
    for number, point in enumerate(whole.points, start=1):
        torch.set_grad_enabled(True)
        cut = style(number)
        try:
            found = cut.run()
        except StatesDifferError:
            refused |= {point} if number > known else set()
        else:
            assert (cut.rounds, found) == (2, expected), point
    assert refused == REFUSED.get(style, set())


class Averaged(Loop):
    """Keeps an average of its parameters, by its own means."""

    def build(self) -> None:
        self.average = nn.Linear(3, 4)
        self.others["average"] = self.average

    def step(self, run: Run, batch: Batch) -> None:
        super().step(run, batch)
        self.at("before")
        for mine, other in zip(self.average.parameters(), self.model[0].parameters(), strict=True):
            mine.data.mul_(0.9).add_(other.data, alpha=0.1)


def test_parameters_that_the_loop_changes_itself_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    """It is not known whether they are those of the last step."""
    with pytest.raises(RuntimeError, match=CLOSED):
        Averaged(5).run()
    assert "it cannot see when weight changes, which no optimizer holds" in capsys.readouterr().out


def test_parameters_that_change_after_the_first_step_are_found_when_the_round_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Later(Averaged):
        def step(self, run: Run, batch: Batch) -> None:
            (Averaged if run.steps_done else Loop).step(self, run, batch)

    with pytest.raises(StatesDifferError):
        Later(6).run()
    assert "cannot be used: no optimizer holds weight, and the script has changed it" in capsys.readouterr().out


def test_what_is_not_done_again_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    loop = MovesBeforeItEvaluates()
    loop.run()
    second = [number for number, point in enumerate(loop.points, start=1) if point == "evaluation"][1]
    MovesBeforeItEvaluates(second).run()
    assert capsys.readouterr().out.count(AFTER_STEP.format(2)) == 1


class Draws(Loop):
    def build(self) -> None:
        random.seed(1)
        self.drawn: list[float] = []

    def loss(self, batch: Batch) -> Tensor:
        self.drawn += [torch.rand(()).item(), random.random()]
        return super().loss(batch)


class SeedsInEachRound(Draws):
    def train(self, run: Run) -> None:
        torch.manual_seed(5)
        random.seed(5)
        super().train(run)


@pytest.mark.parametrize("style", [Draws, SeedsInEachRound])
def test_no_number_is_drawn_twice(style: Callable[[int], Draws]) -> None:
    loop = style(7)
    loop.run()
    assert loop.rounds == 2
    assert len(set(loop.drawn)) == len(loop.drawn)


class FreezesLater(Loop):
    """From its second epoch on, whose statistics stay what they are then."""

    def train(self, run: Run) -> None:
        self.rounds += 1
        for epoch in run.epochs(EPOCHS + 1):
            if epoch == 1:
                self.model[1].eval()
            for batch in run.batches(self.data):
                self.step(run, batch)
            self.end(epoch)


@pytest.mark.parametrize("cut", [12, 14, 15])
def test_a_mode_that_an_epoch_has_set_stays_for_those_after_it(cut: int) -> None:
    expected = FreezesLater().run()
    loop = FreezesLater(cut)
    assert (loop.run(), loop.rounds) == (expected, 2)
    assert loop.points[cut - 1].startswith(("forward", "backward", "end of epoch 2"))


@pytest.mark.parametrize("cut", [1, 3])
def test_a_loop_that_goes_on_after_an_error_is_told_that_its_round_is_over(
    monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Before it takes more samples: they would all be one step's."""

    class Swallows(Loop):
        def step(self, run: Run, batch: Batch) -> None:
            try:
                super().step(run, batch)
            except RuntimeError:
                over.append(True)

    def check(_: outlived.Rounds) -> None:
        if over:
            over.clear()
            raise RuntimeError(CLOSED)

    over: list[bool] = []
    monkeypatch.setattr(outlived.Rounds, "check", check)
    expected = Loop().run()
    loop = Swallows(cut)
    assert (loop.run(), loop.rounds) == (expected, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0,)])
@pytest.mark.parametrize("offset", [0, 1])
def test_any_number_of_a_parameter_that_changes_is_noticed(
    dtype: torch.dtype, shape: tuple[int, ...], offset: int
) -> None:
    """Also of a part of a larger tensor, which is where its bytes are not aligned."""
    size = math.prod(shape)
    values = torch.ones(size + offset, dtype=dtype)[offset:].view(shape)
    module = nn.Module()
    module.register_parameter("weight", nn.Parameter(values))
    watched = Untouched([module])
    assert not watched.changed()
    flat = module.get_parameter("weight").detach().view(-1)
    for index in range(size):
        flat[index] = 2
        assert watched.changed() == "weight"
        flat[index] = 1
