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
from kittrain.rank.snapshots.read.survivors import Brought, StatesDifferError
from kittrain.rank.training.session import Session
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
    """A loop that is cut short once, at a point of a step, or after its first epoch.

    Its rate of learning falls after each epoch, or with ``each_step`` after each step, once that is counted.
    """

    def __init__(self, folder: Path | None = None, point: str = "", *, each_step: bool = False) -> None:
        torch.manual_seed(1)
        self.world = outlived.world(folder)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = ExponentialLR(self.optimizer, 0.5)
        samples = TensorDataset(torch.rand(8 * STEPS_PER_EPOCH, 3, generator=torch.Generator().manual_seed(2)))
        self.data = Data(samples, batch=8, seed=3)
        self.point = point
        self.each_step = each_step
        self.modes: set[bool] = set()  # that it has trained in
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
                self.modes.add(self.model.training)
                loss = self.model(batch.samples[0]).square().mean()
                self.reached(f"forward of step {step}")
                loss.backward()
                self.reached(f"backward of step {step}")
                self.optimizer.step()
                self.reached(f"update of step {step}")
                run.step(loss)
                self.optimizer.zero_grad()
                self.reached(f"count of step {step}")
                if self.each_step:
                    self.scheduler.step()
                self.reached(f"end of step {step}")
            self.reached(f"end of epoch {epoch}")
            if not self.each_step:
                self.scheduler.step()
            self.model.eval()
            self.reached(f"evaluation of epoch {epoch}")
            self.model.train()
            run.save(epochs=epoch + 1)
            self.ends.append(epoch)
            self.reached_in(run._session, f"last losses of epoch {epoch}", "flush")
            self.reached_in(run._session, f"snapshot of epoch {epoch}", "commit")

    def reached_in(self, session: Session, point: str, name: str) -> None:
        """The next call of a method of the session fails."""

        def cut(*_: Any, **__: Any) -> None:
            vars(session).pop(name)
            self.reached(point)

        if point == self.point:
            vars(session)[name] = cut

    def run(self) -> dict[str, torch.Tensor]:
        """The final state."""
        objects: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        run_rounds(
            self.world, self.train, on_step=lambda step: self.steps.append(step.number), data=self.data, **objects
        )
        return self.model.state_dict()


def ends_alike(tmp_path: Path, point: str, *, each_step: bool = False) -> None:
    """With the steps, the state and the snapshots of a loop that was not cut short."""
    whole = Script(tmp_path / "whole", each_step=each_step)
    expected = whole.run()
    cut = Script(tmp_path / "cut", point, each_step=each_step)
    found = cut.run()
    assert (whole.rounds, cut.rounds) == (1, 2)
    assert cut.steps == whole.steps == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert cut.ends == [0, 1, 2]
    assert cut.modes == {True}
    assert cut.scheduler.state_dict() == whole.scheduler.state_dict()
    assert cut.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"]
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    manifests = [read_manifest(path) for path in sorted((tmp_path / "cut").glob("step-*"))]
    assert audit(manifests[-1].ledger, cut.data.order) == Cursor(EPOCHS, 0)
    assert [one.metrics.get("epochs") for one in manifests if one.metrics] == [1, 2, 3]


@pytest.mark.parametrize(
    "point",
    [
        "forward of step 6",
        "backward of step 6",
        "forward of step 5",
        "forward of step 1",
        "end of step 6",
        "end of epoch 0",
        "evaluation of epoch 0",
        "last losses of epoch 0",
        "last losses of epoch 2",
        "snapshot of epoch 0",
    ],
)
def test_it_goes_on_after_the_last_step_with_nothing_lost_or_taken_twice(tmp_path: Path, point: str) -> None:
    ends_alike(tmp_path, point)


@pytest.mark.parametrize("point", ["forward of step 7", "forward of step 1", "evaluation of epoch 0"])
def test_the_rate_of_learning_may_fall_after_a_step_is_counted(tmp_path: Path, point: str) -> None:
    ends_alike(tmp_path, point, each_step=True)


@pytest.mark.parametrize("point", ["forward of step 7", "last losses of epoch 1", "evaluation of epoch 1"])
@pytest.mark.parametrize("lost", ["before the state is agreed", "after it"])
def test_the_next_round_is_lost_as_well_while_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, lost: str
) -> None:
    begin = Session.__enter__
    rounds: list[str] = []

    def enter(session: Session) -> Session:
        if len(rounds) == 1 and lost == "before the state is agreed":
            rounds.append("lost")
            raise RuntimeError(CLOSED)
        rounds.append("entered")
        return begin(session)

    def train(script: Script, run: Run) -> None:
        if len(rounds) == 2 and lost == "after it":
            rounds.append("lost")
            raise RuntimeError(CLOSED)
        of_script(script, run)

    of_script = Script.train
    monkeypatch.setattr(Session, "__enter__", enter)
    monkeypatch.setattr(Script, "train", train)
    cut = Script(tmp_path, point)
    cut.run()
    assert cut.rounds == 2
    assert "lost" in rounds
    assert cut.steps == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert (cut.ends, cut.scheduler.last_epoch) == ([0, 1, 2], EPOCHS)


@pytest.mark.parametrize("asked", [True, False])
def test_a_round_may_end_where_a_loop_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    """Not before: after a step is counted the loop may still do what belongs to it."""

    def check(rounds: outlived.Rounds) -> None:
        if rounds.over:
            rounds.over = False
            raise RuntimeError(CLOSED)

    def over(script: Script, point: str) -> None:
        vars(script.world.rounds)["over"] |= point == ("end of step 6" if asked else "update of step 6")

    monkeypatch.setattr(outlived.Rounds, "over", False)
    monkeypatch.setattr(outlived.Rounds, "check", check)
    monkeypatch.setattr(Script, "reached", over)
    script = Script(tmp_path, each_step=True)
    vars(script.world.rounds)["over"] = False
    script.run()
    assert script.rounds == 2
    assert script.scheduler.last_epoch == EPOCHS * STEPS_PER_EPOCH


@pytest.mark.parametrize(
    ("point", "each_step"), [("update of step 6", False), ("count of step 6", True), ("count of step 1", True)]
)
def test_a_state_that_has_changed_since_the_last_step_is_not_used(point: str, *, each_step: bool) -> None:
    script = Script(point=point, each_step=each_step)
    with pytest.raises(StatesDifferError, match="cut short on each rank"):
        script.run()
    assert script.rounds == 1


def test_who_has_done_what_follows_a_step_or_an_epoch_is_ahead() -> None:
    stepped, asked = Brought(loop=[0, 0]), Brought(loop=[0, 0], asked=True)
    ended = Brought(loop=[1, 8], asked=True)
    assert stepped.reached(8) < asked.reached(8) < ended.reached(8) < stepped.reached(9)


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
