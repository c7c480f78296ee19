"""A step is whole or not taken: wherever ``fit()`` is cut short, nothing of it is left, or the state is not used."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from kittrain import Data, Training
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.read.survivors import StatesDifferError
from kittrain.rank.training.session import Session
from kittrain.rank.training.snapshot_schedule import SnapshotSchedule
from tests.trainer import outlived
from tests.trainer.outlived import CLOSED

STEPS, CUT = 8, 5


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    outlived.outlive(monkeypatch)


class Job:
    """A training of eight steps; the fifth is cut short once, at a point."""

    def __init__(self, folder: Path, point: str = "") -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.steps: list[int] = []
        self._world = outlived.world(folder)
        self._point = point
        self._taken = 0
        self.model[0].register_forward_hook(lambda *_: self._reached("forward", begins=True))
        self.model.get_parameter("0.weight").register_hook(lambda _: self._reached("backward"))
        self.optimizer.register_step_pre_hook(lambda *_: self._reached("before the update"))
        self.optimizer.register_step_post_hook(lambda *_: self._reached("after the update"))

    def _reached(self, point: str, *, begins: bool = False) -> None:
        self._taken += begins
        if point == self._point and self._taken == CUT:
            self._point = ""
            if "update" in point:
                with torch.no_grad():
                    next(self.model.parameters()).add_(1.0)
            raise RuntimeError(CLOSED)

    def fit(self) -> dict[str, torch.Tensor]:
        """The final state."""
        samples = TensorDataset(torch.rand(8 * STEPS, 3, generator=torch.Generator().manual_seed(2)))
        Training(
            self._world,
            self.model,
            self.optimizer,
            lambda model, batch: model(batch[0]).square().mean(),
            Data(samples, batch=8, seed=3),
            epochs=1,
            on_step=lambda step: self.steps.append(step.number),
        ).fit()
        return self.model.state_dict()


@pytest.mark.parametrize("point", ["forward", "backward"])
def test_before_the_update_the_step_is_taken_again_as_if_nothing_had_been(tmp_path: Path, point: str) -> None:
    whole, cut = Job(tmp_path / "whole"), Job(tmp_path / "cut", point)
    expected, found = whole.fit(), cut.fit()
    assert cut.steps == whole.steps == list(range(1, STEPS + 1))
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


class Evaluated:
    """Two epochs of two steps, each evaluated; a method of its session fails once, after a step."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, cut: int) -> None:
        torch.manual_seed(1)
        model = nn.Linear(3, 1)
        self.calls: list[tuple[str, int]] = []
        self.steps: list[int] = []
        self._cut = cut
        method = getattr(Session, name)

        def fail_once(session: Session, *args: Any, **kwargs: Any) -> None:
            if session.steps == self._cut:
                self._cut = 0
                raise RuntimeError(CLOSED)
            method(session, *args, **kwargs)

        monkeypatch.setattr(Session, name, fail_once)
        Training(
            outlived.world(folder),
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            lambda model, batch: model(batch[0]).square().mean(),
            Data(TensorDataset(torch.rand(16, 3)), batch=8, seed=3),
            epochs=2,
            on_step=lambda step: self.steps.append(step.number),
            on_epoch=lambda epoch: self._called("epoch", epoch),
            evaluate_every=1,
            on_evaluate=lambda step: self._called("evaluation", step),
        ).fit()

    def _called(self, name: str, number: int) -> dict[str, float]:
        self.calls.append((name, number))
        return {name: number}


class CutEvaluation:
    """Two epochs of two steps; ranks are lost once while the first epoch is evaluated."""

    def __init__(self, folder: Path, *, cut: bool, swaps: bool = False) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.modes: list[bool] = []
        self.calls: list[int] = []
        self._cut, self._swaps = cut, swaps
        samples = torch.rand(16, 3, generator=torch.Generator().manual_seed(2))
        loss, data = self._loss, Data(TensorDataset(samples), batch=8, seed=3)
        world = outlived.world(folder)
        Training(world, self.model, self.optimizer, loss, data, epochs=2, on_epoch=self._evaluate).fit()

    def _loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        self.modes.append(model.training)
        found: torch.Tensor = model(batch[0]).square().mean()
        return found

    def _evaluate(self, epoch: int) -> dict[str, float]:
        weights = [one.detach().clone() for one in self.model.parameters()]
        self.model(torch.rand(8, 3, generator=torch.Generator().manual_seed(4)))  # changes batch statistics
        self.model.eval()
        self.optimizer.param_groups[0]["lr"] *= 0.5
        with torch.no_grad():
            for one in self.model.parameters() if self._swaps else ():
                one.mul_(0.9)
        if self._cut:
            self._cut = False
            raise RuntimeError(CLOSED)
        with torch.no_grad():
            for one, value in zip(self.model.parameters(), weights, strict=True):
                one.copy_(value)
        self.model.train()
        self.calls.append(epoch)
        return {"epoch": epoch}


def test_an_evaluation_that_is_cut_short_is_done_anew_from_the_same_state(tmp_path: Path) -> None:
    whole, cut = CutEvaluation(tmp_path / "whole", cut=False), CutEvaluation(tmp_path / "cut", cut=True)
    assert (cut.calls, whole.calls) == ([0, 1], [0, 1])
    assert cut.modes == whole.modes == [True] * 4
    assert cut.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"] == 0.1 / 4
    assert cut.model[1].num_batches_tracked == whole.model[1].num_batches_tracked
    assert read_manifest(max((tmp_path / "cut").glob("step-*"))).metrics == {"epoch": 1}


def test_weights_that_an_evaluation_has_swapped_are_not_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CutEvaluation(tmp_path / "whole", cut=False, swaps=True)
    with pytest.raises(StatesDifferError, match="cut short on each rank"):
        CutEvaluation(tmp_path / "cut", cut=True, swaps=True)
    assert "cannot be used: 0.weight is not what was trained" in capsys.readouterr().out


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["flush", "save_or_drain", "commit"])
def test_what_is_due_after_a_step_is_neither_left_out_nor_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cut: int
) -> None:
    """In virtual ranks and sharded models the losses are exchanged by themselves, after the update."""
    monkeypatch.setattr(SnapshotSchedule, "has_best_metric", lambda *_: True)
    job = Evaluated(tmp_path, monkeypatch, name, cut=cut)
    assert job.steps == [1, 2, 3, 4]
    assert job.calls == [
        *(("evaluation", 1), ("evaluation", 2), ("epoch", 0)),
        *(("evaluation", 3), ("evaluation", 4), ("epoch", 1)),
    ]
    found = [read_manifest(one).metrics for one in sorted(tmp_path.glob("step-*"))]
    assert found == [  # the last three are kept
        {"evaluation": 2, "epoch": 0},
        {"evaluation": 3},
        {"evaluation": 4, "epoch": 1},
    ]


@pytest.mark.parametrize("point", ["before the update", "after the update"])
def test_an_update_that_was_cut_short_leaves_no_state(tmp_path: Path, point: str) -> None:
    job = Job(tmp_path, point)
    with pytest.raises(StatesDifferError, match="cut short on each rank"):
        job.fit()
    assert max(job.steps) < CUT


def test_a_ddp_module_that_is_no_longer_used_is_no_obstacle(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    gc.disable()  # as between two collections
    try:
        module = DistributedDataParallel(nn.Linear(1, 1))
        circle: list[object] = [module]
        circle.append(circle)
        del module, circle
        job = Job(tmp_path, "forward")
        job.fit()
    finally:
        gc.enable()
        dist.destroy_process_group()
    assert job.steps == list(range(1, STEPS + 1))
