"""A loop of the script's own is called again after a fault, and goes on where a resumed one would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from kittrain import Data, Run, attach, run_rounds
from kittrain.rank.snapshots.folder.ledger import audit
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.read.survivors import StatesDifferError
from kittrain.rank.world.order import Cursor
from tests.trainer import outlived
from tests.trainer.outlived import CLOSED
from tests.trainer.reports import progress_in
from tests.trainer.settings import rank_of

EPOCHS, STEPS_PER_EPOCH = 3, 4


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    outlived.outlive(monkeypatch)


class Script:
    """A loop that is cut short once, at a point of its sixth step, or after its first epoch."""

    def __init__(self, folder: Path | None = None, point: str = "") -> None:
        torch.manual_seed(1)
        self.world = outlived.world(folder)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = ExponentialLR(self.optimizer, 0.5)
        samples = TensorDataset(torch.rand(8 * STEPS_PER_EPOCH, 3, generator=torch.Generator().manual_seed(2)))
        self.data = Data(samples, batch=8, seed=3)
        self.point = point
        self.rounds = 0
        self.steps: list[int] = []
        self.ends: list[int] = []

    def reached(self, point: str) -> None:
        if point == self.point:
            self.point = ""
            raise RuntimeError(CLOSED)

    def train(self, run: Run) -> None:
        self.rounds += 1
        for epoch in run.epochs(EPOCHS):
            for number, batch in run.enumerate(self.data):
                step = epoch * STEPS_PER_EPOCH + number + 1
                loss = self.model(batch.samples[0]).square().mean()
                self.reached(f"forward of step {step}")
                loss.backward()
                self.reached(f"backward of step {step}")
                self.optimizer.step()
                self.reached(f"update of step {step}")
                run.step(loss)
                self.optimizer.zero_grad()
            self.reached(f"end of epoch {epoch}")
            self.scheduler.step()
            self.reached(f"schedule of epoch {epoch}")
            self.ends.append(epoch)

    def run(self) -> dict[str, torch.Tensor]:
        """The final state."""
        objects: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        run_rounds(
            self.world, self.train, on_step=lambda step: self.steps.append(step.number), data=self.data, **objects
        )
        return self.model.state_dict()


@pytest.mark.parametrize(
    "point", ["forward of step 6", "backward of step 6", "forward of step 5", "forward of step 1", "end of epoch 0"]
)
def test_it_goes_on_after_the_last_step_with_nothing_lost_or_taken_twice(tmp_path: Path, point: str) -> None:
    whole = Script(tmp_path / "whole")
    expected = whole.run()
    cut = Script(tmp_path / "cut", point)
    found = cut.run()
    assert (whole.rounds, cut.rounds) == (1, 2)
    assert cut.steps == whole.steps == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert cut.ends == [0, 1, 2]
    assert cut.scheduler.last_epoch == EPOCHS
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    (newest,) = sorted((tmp_path / "cut").glob("step-*"))[-1:]
    assert audit(read_manifest(newest).ledger, cut.data.order) == Cursor(EPOCHS, 0)


@pytest.mark.parametrize("point", ["update of step 6", "schedule of epoch 0"])
def test_a_state_that_has_changed_since_the_last_step_is_not_used(point: str) -> None:
    script = Script(point=point)
    with pytest.raises(StatesDifferError, match="cut short on each rank"):
        script.run()
    assert script.rounds == 1


def test_an_error_of_the_script_s_own_is_none_of_a_lost_rank() -> None:
    script = Script()

    def train(_run: Run) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run_rounds(script.world, train, model=script.model)


class Average:
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _: {"noise": torch.Generator()}, "the run has objects of each rank's own"),
        (lambda script: {"swa": AveragedModel(script.model)}, "it cannot see when swa changes"),
        (lambda _: {"average": Average()}, "it cannot see when average changes"),
    ],
)
def test_what_it_cannot_see_change_is_told_once_and_a_fault_ends_the_rank(
    capsys: pytest.CaptureFixture[str], make: Callable[[Script], dict[str, Any]], why: str
) -> None:
    script = Script(point="forward of step 6")
    with pytest.raises(RuntimeError, match=CLOSED):
        run_rounds(script.world, script.train, model=script.model, data=script.data, **make(script))
    assert capsys.readouterr().out.count(f"although policy.survivors is live: {why}") == 1


@pytest.mark.parametrize(("library", "why"), [(True, "it cannot see when average changes"), (False, "run_rounds()")])
def test_the_status_says_that_ranks_do_not_live_on(tmp_path: Path, *, library: bool, why: str) -> None:
    script, file = Script(), tmp_path / "progress"
    script.world = replace(script.world, env=replace(script.world.env, progress_file=file))
    told: list[str] = []

    def train(run: Run) -> None:
        for _ in run.steps(3):
            run.step()
        run._session.report._write()
        told.append(progress_in(file)["warning"])

    if library:
        run_rounds(script.world, train, model=script.model, average=Average())
    else:
        with Run(script.world, model=script.model) as run:
            train(run)
    assert why in told[0]


def test_a_loader_s_batches_cannot_be_continued(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script()

    def train(run: Run) -> None:
        for _ in run.epochs(1):
            for _ in run.batches(DataLoader(TensorDataset(torch.rand(8, 3)), batch_size=4)):
                run.step()
            raise RuntimeError(CLOSED)

    with pytest.raises(RuntimeError, match=CLOSED):
        run_rounds(script.world, train, model=script.model)
    assert capsys.readouterr().out.count("the loop takes batches from a loader") == 1


def test_without_the_setting_it_is_called_once() -> None:
    script = Script(point="forward of step 6")
    script.world = attach(env=rank_of(run_id="run"))
    with pytest.raises(RuntimeError, match=CLOSED):
        script.run()
    assert script.rounds == 1
