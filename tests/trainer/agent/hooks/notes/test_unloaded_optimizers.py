"""Runs that go on from a checkpoint without its optimizer; and those that load it, or go another way on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kittrain.agent.hooks.notes.unloaded_optimizers import UnloadedOptimizers
from kittrain.outcome.rank_output import NOT_RESUMED, trains_nothing


class Run:
    """A process that finds ``last.pt``, with notes of what it loads and saves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes, self.path, self.model = UnloadedOptimizers(), folder / "last.pt", nn.Linear(2, 1)
        self.use(torch.optim.SGD, momentum=0.9)
        optimizer = torch.optim.Optimizer
        for kind, name in ((optimizer, "load_state_dict"), (optimizer, "__setstate__"), (nn.Module, "load_state_dict")):
            monkeypatch.setattr(kind, name, getattr(kind, name))  # is restored
        self.step(noted=False)
        torch.save(self.content(), self.path)
        self.notes.watch_optimizers(SimpleNamespace(Optimizer=torch.optim.Optimizer))  # type: ignore[arg-type]
        self.notes.watch_modules(SimpleNamespace(Module=nn.Module))  # type: ignore[arg-type]

    def use(self, kind: Any, **options: Any) -> None:
        self.optimizer = kind(self.model.parameters(), lr=0.1, **options)

    def content(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": 1}

    def load(self, path: Path | None = None) -> Any:
        saved = torch.load(path or self.path)
        self.notes.loaded(path or self.path, saved)
        return saved

    def resume(self, path: Path | None = None) -> Any:
        saved = self.load(path)
        self.model.load_state_dict(saved["model"])
        return saved

    def step(self, *, noted: bool = True) -> None:
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        if noted:
            self.notes.called(self.optimizer)

    def save(self, file: Any = None, content: Any = None) -> None:
        content = self.content() if content is None else content
        torch.save(content, file or self.path)
        self.notes.saved(file or self.path, content)


def goes_on(run: Run) -> None:
    run.resume()
    run.step()
    run.save()


def by_another_path(run: Run) -> None:
    (run.path.parent / "newest.pt").symlink_to(run.path)
    run.resume(run.path.parent / "newest.pt")
    run.step()
    with run.path.open("wb") as file:
        run.save(file)


def by_a_rename(run: Run) -> None:
    run.resume()
    run.step()
    temporary = run.path.with_suffix(".tmp")
    run.save(temporary)
    temporary.replace(run.path)
    run.notes.renamed(temporary, run.path)


def loads_the_optimizer(run: Run) -> None:
    run.optimizer.load_state_dict(run.resume()["optimizer"])
    run.step()
    run.save()


def sets_its_state(run: Run) -> None:
    run.optimizer.__setstate__(run.resume()["optimizer"])
    run.use(torch.optim.SGD)  # what was given has numbers in place of parameters
    run.step()
    run.save()


def has_none_to_load(run: Run) -> None:
    """SGD without momentum, before its first step, has settings only."""
    run.use(torch.optim.SGD)
    torch.save(run.content(), run.path)
    goes_on(run)


def fine_tunes(run: Run) -> None:
    run.resume()
    run.step()
    run.save(run.path.parent / "tuned.pt")


def saves_the_model_alone(run: Run) -> None:
    run.resume()
    run.step()
    run.save(content={"model": run.model.state_dict()})


def evaluates(run: Run) -> None:
    run.resume()
    run.save()


def reads_its_epoch(run: Run) -> None:
    run.load()
    run.step()
    run.save()


def goes_back_to_its_best(run: Run) -> None:
    run.step()
    run.save()
    goes_on(run)


def has_its_own_way_to_load(run: Run) -> None:
    class Own(torch.optim.SGD):
        def load_state_dict(self, state_dict: Any) -> None:
            self.momentum = state_dict["state"]

    run.use(Own, momentum=0.9)
    run.optimizer.load_state_dict(run.resume()["optimizer"])
    run.step()
    run.save()


def saves_a_file_of_its_name_elsewhere(run: Run) -> None:
    (run.path.parent / "tuned").mkdir()
    run.resume()
    run.step()
    run.save(run.path.parent / "tuned" / run.path.name)


def saves_another_object(run: Run) -> None:
    run.resume()
    run.step()
    run.save(content=[1])


@pytest.mark.parametrize("way", [goes_on, by_another_path, by_a_rename])
def test_an_optimizer_that_was_not_loaded_is_told(
    way: Callable[[Run], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, monkeypatch)
    way(run)
    run.notes.tell()
    told = f"{NOT_RESUMED}last.pt has optimizer; this run goes on from it and saves it"
    assert capsys.readouterr().err == f"note: {told}\n"
    assert trains_nothing([f"note: {told}\n"]) == told


@pytest.mark.parametrize(
    "way",
    [
        loads_the_optimizer,
        sets_its_state,
        has_none_to_load,
        fine_tunes,
        saves_the_model_alone,
        evaluates,
        reads_its_epoch,
        goes_back_to_its_best,
        has_its_own_way_to_load,
        saves_a_file_of_its_name_elsewhere,
        saves_another_object,
    ],
)
def test_other_runs_are_left_alone(
    way: Callable[[Run], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, monkeypatch)
    way(run)
    run.notes.tell()
    assert capsys.readouterr().err == ""


def test_names_that_are_texts_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, monkeypatch)
    content = {"a key\n": run.optimizer.state_dict(), "model": run.model.state_dict()}
    path = tmp_path / "a name.pt"
    torch.save(content, path)
    run.resume(path)
    run.step()
    run.save(path, content)
    run.notes.tell()
    assert capsys.readouterr().err == f"note: {NOT_RESUMED}a file has one; this run goes on from it and saves it\n"
