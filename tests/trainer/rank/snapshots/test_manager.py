"""Background snapshots: they hold the state at the call, and count as committed once they are on disk."""

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
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.folder.archive import Archive, SnapshotError
from kittrain.rank.snapshots.folder.fence import Fence, Fenced
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.state.tensor_reader import load_full
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.settings import rank_of


class Run:
    """A snapshot manager and the model that it saves."""

    def __init__(self, folder: Path, *, keep: int = 3, **env: Any) -> None:
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), momentum=0.9)
        rank_env = rank_of(snapshots__keep=keep, run_id="run", snapshot_dir=folder, **env)
        world = World(env=rank_env, device=torch.device("cpu"))
        state = State(model=self.model, optimizer=self.optimizer)
        self.snapshots = SnapshotManager(world, state, Order(samples=10, batch=1))
        self.snapshots.restore()

    def finish_writing(self) -> None:
        """Advance, as the loop does between steps, until nothing is pending or being published."""
        while not self.snapshots.written:
            pass
        self.snapshots.advance(written=True)
        with self.snapshots:
            pass


@contextmanager
def blocked_writes() -> Iterator[threading.Event]:
    """Shards are written only once the event is set."""
    gate, write = threading.Event(), shards.write

    def wait_and_write(*args: Any) -> shards.Shard:
        gate.wait()
        return write(*args)

    with patch("kittrain.rank.snapshots.files.shards.write", wait_and_write):
        yield gate
        gate.set()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


def test_a_snapshot_has_the_state_at_begin(tmp_path: Path) -> None:
    run = Run(tmp_path)
    weights = run.model.weight.detach().clone()
    with blocked_writes() as gate:
        run.snapshots.begin(Cursor(0, 1), {"loss": 0.5})
        run.model.weight.data.fill_(7)
        run.snapshots.advance(written=False)
        assert (run.snapshots.pending, run.snapshots.written, run.snapshots.committed.step) == (True, False, 0)
        assert names(tmp_path) == []
        gate.set()
        run.finish_writing()
    assert names(tmp_path) == ["step-00000001-g0001"]
    assert (run.snapshots.pending, run.snapshots.committed.step) == (False, 1)
    assert run.snapshots.committed.seconds >= run.snapshots.committed.stall > 0
    assert torch.equal(load_full(tmp_path / "step-00000001-g0001")["model/weight"], weights)


def test_the_next_snapshot_waits_for_the_previous_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with blocked_writes() as gate:
        run.snapshots.begin(Cursor(0, 1), {})
        threading.Timer(0.05, gate.set).start()
        run.snapshots.commit(Cursor(0, 2), {})
    assert names(tmp_path) == ["step-00000001-g0001", "step-00000002-g0001"]


def test_old_snapshots_are_deleted_after_the_new_one_is_committed(tmp_path: Path) -> None:
    run = Run(tmp_path, keep=1)
    seen = []

    def record(archive: Archive) -> None:
        seen.append((run.snapshots.committed.step, names(tmp_path)))
        apply_retention(archive)

    apply_retention = Archive.apply_retention
    run.snapshots.commit(Cursor(0, 1), {})
    with patch.object(Archive, "apply_retention", record):
        run.snapshots.commit(Cursor(0, 2), {})
    assert seen == [(2, ["step-00000001-g0001", "step-00000002-g0001"])]
    assert names(tmp_path) == ["step-00000002-g0001"]


def fail(run: Run) -> None:
    with run.snapshots:
        run.snapshots.begin(Cursor(0, 1), {})
        raise ZeroDivisionError


def test_a_single_rank_that_fails_publishes_what_it_has_written(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail(run)
    assert names(tmp_path) == ["step-00000001-g0001"]


def test_advance_raises_if_the_generation_is_stale(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with blocked_writes():
        run.snapshots.begin(Cursor(0, 1), {})
        Fence(tmp_path).claim("run")
    run.finish_writing()
    with pytest.raises(Fenced):
        run.snapshots.advance(written=True)
    assert names(tmp_path) == []
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_state_that_grows_gets_a_new_layout(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.snapshots.commit(Cursor(0, 1), {})
    before = load_full(tmp_path / "step-00000001-g0001")
    run.model(torch.ones(1, 2)).sum().backward()
    run.optimizer.step()
    run.model.register_buffer("seen", torch.tensor(3))
    run.snapshots.commit(Cursor(0, 2), {})
    after = load_full(tmp_path / "step-00000002-g0001")
    assert after.keys() - before.keys() >= {"model/seen"}
    assert after["model/seen"] == 3


def test_without_a_copy_training_waits_until_the_state_is_written(tmp_path: Path) -> None:
    run = Run(tmp_path, snapshots__copy=False)
    weights = run.model.weight.detach().clone()
    run.snapshots.begin(Cursor(0, 1), {})
    assert run.snapshots.written
    run.model.weight.data.fill_(7)
    run.finish_writing()
    assert torch.equal(load_full(tmp_path / "step-00000001-g0001")["model/weight"], weights)
    assert Run(tmp_path, snapshots__copy=False).model.weight.equal(weights)


def test_finish_writes_the_model_file_and_the_marker(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.snapshots.commit(Cursor(0, 3), {})
    run.snapshots.finish()
    run.model.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert json.loads((tmp_path / ".finished-run").read_text()) == {"run": "run", "step": 3, "model": "model.pt"}
    assert not list(tmp_path.glob(".tmp-*"))


def test_finish_writes_no_model_file_if_disabled(tmp_path: Path) -> None:
    run = Run(tmp_path, snapshots__model_file=False)
    run.snapshots.finish()
    assert not (tmp_path / "model.pt").exists()
    assert json.loads((tmp_path / ".finished-run").read_text())["model"] == ""


def test_finish_writes_no_marker_if_the_model_file_fails(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "model.pt").mkdir()
    with pytest.raises(SnapshotError, match=r"the trained model cannot be written to .*: .*Is a directory"):
        run.snapshots.finish()
    assert not (tmp_path / ".finished-run").exists()
    assert not list(tmp_path.glob(".tmp-*"))
