"""Snapshots behind training: what is saved is the state of its moment, and committed is what is on the disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from kittrain import World
from kittrain.env import RankEnv
from kittrain.snapshots import shards
from kittrain.snapshots.archive import Archive, SnapshotError
from kittrain.snapshots.fence import Fence, Fenced
from kittrain.snapshots.history import History
from kittrain.snapshots.loading import load_full
from kittrain.snapshots.state import State
from kittrain.world.order import Cursor, Order


class Run:
    """A history and the model that it keeps."""

    def __init__(self, folder: Path, *, keep: int = 3, **env: Any) -> None:
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), momentum=0.9)
        kept = RankEnv(run_id="run", snapshot_dir=folder, snapshot_keep=keep, **env)
        world = World(env=kept, device=torch.device("cpu"))
        state = State(model=self.model, optimizer=self.optimizer)
        self.history = History(world, state, Order(samples=10, batch=1))
        self.history.restore()

    def settle(self) -> None:
        """Go on, as the loop does between steps, until nothing is pending or being published."""
        while not self.history.written:
            pass
        self.history.advance(written=True)
        with self.history:
            pass


@contextmanager
def held() -> Iterator[threading.Event]:
    """Shards are written once the event is set."""
    gate, write = threading.Event(), shards.write

    def wait_and_write(*args: Any) -> shards.Shard:
        gate.wait()
        return write(*args)

    with patch("kittrain.snapshots.shards.write", wait_and_write):
        yield gate
        gate.set()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


def test_what_is_saved_is_the_state_of_its_moment(tmp_path: Path) -> None:
    run = Run(tmp_path)
    weights = run.model.weight.detach().clone()
    with held() as gate:
        run.history.begin(Cursor(0, 1), {"loss": 0.5})
        run.model.weight.data.fill_(7)
        run.history.advance(written=False)
        assert (run.history.pending, run.history.written, run.history.committed.step) == (True, False, 0)
        assert names(tmp_path) == []
        gate.set()
        run.settle()
    assert names(tmp_path) == ["step-00000001-g0001"]
    assert (run.history.pending, run.history.committed.step) == (False, 1)
    assert run.history.committed.seconds >= run.history.committed.stall > 0
    assert torch.equal(load_full(tmp_path / "step-00000001-g0001")["model/weight"], weights)


def test_the_next_one_waits_for_the_one_before(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with held() as gate:
        run.history.begin(Cursor(0, 1), {})
        threading.Timer(0.05, gate.set).start()
        run.history.commit(Cursor(0, 2), {})
    assert names(tmp_path) == ["step-00000001-g0001", "step-00000002-g0001"]


def test_old_ones_go_once_the_new_one_counts(tmp_path: Path) -> None:
    run = Run(tmp_path, keep=1)
    seen = []

    def note(archive: Archive) -> None:
        seen.append((run.history.committed.step, names(tmp_path)))
        thin_out(archive)

    thin_out = Archive.thin_out
    run.history.commit(Cursor(0, 1), {})
    with patch.object(Archive, "thin_out", note):
        run.history.commit(Cursor(0, 2), {})
    assert seen == [(2, ["step-00000001-g0001", "step-00000002-g0001"])]
    assert names(tmp_path) == ["step-00000002-g0001"]


def fail(run: Run) -> None:
    with run.history:
        run.history.begin(Cursor(0, 1), {})
        raise ZeroDivisionError


def test_a_lone_rank_that_fails_leaves_what_it_has_written(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail(run)
    assert names(tmp_path) == ["step-00000001-g0001"]


def test_a_stale_one_is_told_between_steps(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with held():
        run.history.begin(Cursor(0, 1), {})
        Fence(tmp_path).claim("run")
    run.settle()
    with pytest.raises(Fenced):
        run.history.advance(written=True)
    assert names(tmp_path) == []
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_state_that_grows_is_laid_out_anew(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.history.commit(Cursor(0, 1), {})
    before = load_full(tmp_path / "step-00000001-g0001")
    run.model(torch.ones(1, 2)).sum().backward()
    run.optimizer.step()
    run.model.register_buffer("seen", torch.tensor(3))
    run.history.commit(Cursor(0, 2), {})
    after = load_full(tmp_path / "step-00000002-g0001")
    assert after.keys() - before.keys() >= {"model/seen"}
    assert after["model/seen"] == 3


def test_without_a_copy_training_waits_until_the_state_is_written(tmp_path: Path) -> None:
    run = Run(tmp_path, snapshot_copy=False)
    weights = run.model.weight.detach().clone()
    run.history.begin(Cursor(0, 1), {})
    assert run.history.written
    run.model.weight.data.fill_(7)
    run.settle()
    assert torch.equal(load_full(tmp_path / "step-00000001-g0001")["model/weight"], weights)
    assert Run(tmp_path, snapshot_copy=False).model.weight.equal(weights)


def test_a_finished_run_leaves_the_model_and_a_mark(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.history.commit(Cursor(0, 3), {})
    run.history.finish()
    run.model.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert json.loads((tmp_path / ".finished-run").read_text()) == {"run": "run", "step": 3, "model": "model.pt"}
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_finished_run_leaves_no_model_where_nobody_wants_one(tmp_path: Path) -> None:
    run = Run(tmp_path, model_file=False)
    run.history.finish()
    assert not (tmp_path / "model.pt").exists()
    assert json.loads((tmp_path / ".finished-run").read_text())["model"] == ""


def test_a_run_whose_model_cannot_be_written_is_not_finished(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "model.pt").mkdir()
    with pytest.raises(SnapshotError, match=r"the trained model cannot be written to .*: .*Is a directory"):
        run.history.finish()
    assert not (tmp_path / ".finished-run").exists()
    assert not list(tmp_path.glob(".tmp-*"))
