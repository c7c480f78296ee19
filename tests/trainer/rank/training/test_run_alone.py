"""A run of one process: its objects, its reports, the position of its loop, and its errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from kittrain import Data, Drained, Run, Step, World, attach
from kittrain.outcome import marker
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.proof import prove
from kittrain.rank.snapshots.state.state import StateError
from tests.trainer.reports import progress_in
from tests.trainer.settings import rank_of


def world(folder: Path | None = None, **env: Any) -> World:
    return attach(env=rank_of(run_id="run", snapshot_dir=folder, **env))


def stop(_step: Step) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Average:
    """A moving average of a script's own."""

    def __init__(self) -> None:
        self.values = torch.zeros(3)
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values, self.count = state["values"].clone(), state["count"]


def objects() -> dict[str, Any]:
    """Two modules, two optimizers, and others."""
    model, head = nn.Linear(2, 3), nn.Linear(3, 1)
    slow = torch.optim.Adam(model.parameters(), lr=0.1)
    fast = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9)
    return {
        "model": model,
        "head": head,
        "slow": slow,
        "fast": fast,
        "schedule": torch.optim.lr_scheduler.StepLR(fast, 2),
        "average": Average(),
        "swa": AveragedModel(model),
        "noise": torch.Generator().manual_seed(3),
        "unused": None,
    }


def train(folder: Path | None, given: dict[str, Any], steps: int = 9, **options: Any) -> list[float]:
    """The losses."""
    losses = []
    with Run(world(folder), **given, **options) as run:
        for _ in run.steps(steps):
            inputs = torch.rand(4, 2, generator=given["noise"])
            loss = given["head"](given["model"](inputs)).square().mean()
            loss.backward()
            for name in ("slow", "fast"):
                given[name].step()
                given[name].zero_grad()
            given["schedule"].step()
            given["average"].values += inputs.mean()
            given["average"].count += 1
            given["swa"].update_parameters(given["model"])
            losses.append(loss.item())
            run.step(loss, samples=4)
    return losses


def values(given: dict[str, Any]) -> Iterator[Any]:
    for name in ("model", "head", "swa", "average", "schedule"):
        yield from given[name].state_dict().values()
    for name in ("slow", "fast"):
        yield from (one for state in given[name].state.values() for one in state.values())
    yield given["noise"].get_state()


def test_all_objects_are_restored_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    quiet = objects()
    expected = train(None, quiet)
    torch.manual_seed(0)
    with pytest.raises(Drained):
        train(tmp_path, objects(), on_step=lambda step: stop(step) if step.number == 4 else None)
    torch.manual_seed(1)
    resumed = objects()
    assert train(tmp_path, resumed) == expected[7:]  # the request of step 4 was sent with 6
    for one, other in zip(values(quiet), values(resumed), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert list(weights) == ["weight", "bias"]
    torch.testing.assert_close(weights, dict(resumed["model"].state_dict()))


def test_several_modules_without_a_main_one_are_the_model_together(tmp_path: Path) -> None:
    given = objects()
    given["judge"] = given.pop("model")
    given["maker"] = nn.parallel.DataParallel(given.pop("head"))
    with Run(world(tmp_path), **given) as run:
        run.step()
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    names = [name for name in weights if not name.startswith("swa.")]
    assert names == ["judge.weight", "judge.bias", "maker.weight", "maker.bias"]


def test_a_changed_module_or_optimizer_is_an_error_that_names_it(tmp_path: Path) -> None:
    with Run(world(tmp_path), model=nn.Linear(1, 1), other=nn.Linear(1, 1)) as run:
        run.step()
    with (
        pytest.raises(Exception, match="its model has other parameters"),
        Run(world(tmp_path), model=nn.Linear(1, 1), other=nn.Linear(2, 1)),
    ):
        pass
    model = nn.Linear(1, 1)
    first, second = torch.optim.SGD(model.parameters()), torch.optim.Adam(model.parameters())
    with (
        pytest.raises(Exception, match="its optimizer is , not first SGD, second Adam"),
        Run(world(tmp_path), model=model, other=nn.Linear(1, 1), first=first, second=second),
    ):
        pass


def test_a_new_object_keeps_its_initial_state(tmp_path: Path) -> None:
    with Run(world(tmp_path), model=nn.Linear(1, 1), dropped=Average()) as run:
        run.step()
    new = Average()
    new.count = 7
    with Run(world(tmp_path), model=nn.Linear(1, 1), new=new) as run:
        assert run.steps_done == 1
    assert new.count == 7


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ValueError, "no module to train: pass it as model="),
        ({"model": nn.Linear(1, 1), "lr": 0.1}, TypeError, r"lr is 0.1, which has no state_dict"),
        (
            {"model": nn.Linear(1, 1), "data": [1, 2]},
            TypeError,
            r"data is of type list, which has no .*load_state_dict$",
        ),
        (
            {"model": nn.Linear(1, 1), "both": [Average(), Average()]},
            TypeError,
            r"both is of type list, .*: give each of its 2 items by a name of its own, such as both_0=both\[0\]$",
        ),
        ({"half": nn.Linear(1, 1), "other": nn.Linear(1, 1)}, ValueError, "the name half is reserved"),
        ({"net": nn.Linear(1, 1), "model": Average()}, ValueError, "the name model is reserved"),
        ({"net": nn.Linear(1, 1), "host": Average()}, ValueError, "the name host is reserved"),
    ],
)
def test_what_cannot_be_saved_is_an_error(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Run(world(), **given)


def test_an_optimizer_of_something_else_is_an_error_after_the_first_step(tmp_path: Path) -> None:
    other = torch.optim.SGD(nn.Linear(2, 7).parameters())
    with pytest.raises(StateError, match="shape"), Run(world(tmp_path), model=nn.Linear(1, 1), optimizer=other) as run:
        run.step()


def test_a_loop_without_its_calls_is_an_error() -> None:
    run = Run(world(), model=nn.Linear(1, 1))
    for act in (run.step, run.save, lambda: next(run.steps(1)), lambda: next(run.epochs(1))):
        with pytest.raises(RuntimeError, match="with Run"):
            act()
    with run:
        steps = run.steps(3)
        assert next(steps) == 0
        with pytest.raises(RuntimeError, match=r"without a call of Run.step\(\)"):
            next(steps)


def data() -> Data:
    return Data(TensorDataset(torch.arange(10.0)), batch=3)


def test_data_must_be_passed_to_the_run_and_used_up() -> None:
    with pytest.raises(ValueError, match="one Data"):
        Run(world(), model=nn.Linear(1, 1), train=data(), more=data())
    with Run(world(), model=nn.Linear(1, 1)) as run, pytest.raises(ValueError, match="pass the Data to Run"):
        next(run.batches(data()))
    with Run(world(), model=nn.Linear(1, 1), data=(own := data())) as run:
        epochs = run.epochs(2)
        next(epochs)
        next(run.batches(own))
        run.step()
        with pytest.raises(RuntimeError, match="left epoch 1 before its end"):
            next(epochs)


def test_the_ledger_counts_samples_with_data_and_steps_without(tmp_path: Path) -> None:
    def manifest(folder: Path, given: dict[str, Any], source: Any) -> Any:
        with Run(world(folder), model=nn.Linear(1, 1), **given) as run:
            for _ in run.epochs(2):
                for _ in run.batches(source):
                    run.step()
        (path,) = folder.glob("step-*")
        return read_manifest(path)

    own = data()
    counted = manifest(tmp_path / "counted", {"data": own}, own)
    assert (counted.step, counted.samples, [one.stop for one in counted.ledger]) == (8, 10, [10, 10])
    stepped = manifest(tmp_path / "stepped", {}, DataLoader(range(10), batch_size=5))  # type: ignore[arg-type]
    assert (stepped.step, [(one.start, one.stop) for one in stepped.ledger]) == (4, [(0, 4)])


def test_progress_and_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, seen = tmp_path / "progress.json", list[Step]()
    with Run(world(progress_file=file), model=nn.Linear(1, 1), on_step=seen.append) as run:
        for epoch in run.epochs(3):
            for number, _ in enumerate(run.batches(range(6)), 1):
                if number % 2 == 0:
                    run.step(torch.tensor(0.5) if epoch else 0.25, samples=8)
            run.log(accuracy=torch.tensor(0.75), rate=0.1)
        assert run.steps_done == 9
    facts = progress_in(file)
    keys = ("step", "total_steps", "epoch", "epochs", "loss", "metrics")
    assert [facts[key] for key in keys] == [9, 9, 3, 3, 0.5, {"accuracy": 0.75, "rate": pytest.approx(0.1)}]
    assert [(one.number, one.epoch, one.loss, one.size) for one in seen][2:4] == [(3, 0, 0.25, 8), (4, 1, 0.5, 8)]
    assert "epoch 2/3 done loss 0.5000 accuracy 0.7500 rate 0.1000" in capsys.readouterr().out


def test_leaving_a_run_early_finishes_it_and_an_error_does_not(tmp_path: Path) -> None:
    with Run(world(tmp_path), model=nn.Linear(1, 1)) as run:
        for done in run.steps(100):
            run.step()
            if done == 4:
                break
    assert marker.finished(tmp_path, "run")
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000005-g0001"]
    run = Run(world(tmp_path / "other"), model=nn.Linear(1, 1))
    with pytest.raises(ZeroDivisionError), run:
        run.log(accuracy=1 / (run.steps_done or 0))
    assert not marker.finished(tmp_path / "other", "run")
    assert not list((tmp_path / "other").glob("step-*"))


def test_a_snapshot_on_request_is_the_best_one(tmp_path: Path) -> None:
    env = {"snapshots__every_steps": 1000, "snapshots__keep": 1, "snapshots__keep_best": "max:accuracy"}
    with Run(world(tmp_path, **env), model=nn.Linear(1, 1)) as run:
        for done in run.steps(6):
            run.step()
            if done in {1, 3}:
                run.save(accuracy=0.9 - done / 10)
    assert {read_manifest(path).step for path in tmp_path.glob("step-*")} == {2, 6}


def test_handlers_are_restored_and_modules_stay_as_they_are(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    model, other = nn.Linear(1, 1), nn.Linear(1, 1)
    with Run(world(tmp_path), one=model, two=other) as run:
        run.step()
    assert signal.getsignal(signal.SIGTERM) is before
    assert not model._forward_hooks
    torch.save(model, tmp_path / "whole.pt")  # a script may save the whole module


@pytest.mark.parametrize("save", ["at the end", "explicitly", "twice, then at the end"])
def test_two_snapshots_of_one_step_are_one_with_the_latest_state(tmp_path: Path, save: str) -> None:
    for attempt in range(3):  # the first one is written in the background
        folder = tmp_path / f"{save}-{attempt}"
        folder.mkdir()
        given: dict[str, Any] = {"model": nn.Linear(400, 400), "average": Average()}
        optimizer = torch.optim.SGD(given["model"].parameters(), lr=0.1)
        with Run(world(folder), snapshot_every=4, optimizer=optimizer, **given) as run:
            for _ in run.steps(4):
                run.step(1.0)
            given["average"].count = 7
            for _ in range({"at the end": 0, "explicitly": 1}.get(save, 2)):
                run.save(accuracy=0.5)
        newest = max(folder.glob("step-*"))
        assert not prove(read_manifest(newest), {one.name: read_manifest(one) for one in folder.glob("step-*")}).broken
        assert (read_manifest(newest).step, dict(read_manifest(newest).metrics)) == (
            4,
            {} if save == "at the end" else {"accuracy": 0.5},
        )
        again: dict[str, Any] = {"model": nn.Linear(400, 400), "average": Average()}
        optimizer = torch.optim.SGD(again["model"].parameters(), lr=0.1)
        with Run(world(folder, resume=True), optimizer=optimizer, **again) as run:
            assert run.steps_done == 4
        assert again["average"].count == 7
        assert not list(folder.glob(".tmp*"))
