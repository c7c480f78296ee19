"""In-memory copies outlive their ranks; incomplete, damaged and outdated ones are not used."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.layout import Buffer
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.mounts import tmpfs
from tests.trainer.runs import DAMAGE
from tests.trainer.settings import job
from tests.trainer.worlds import finish, fork

ORDER = Order(samples=100, batch=1)


class Run:
    """A single rank that does not train: its one weight is the step number."""

    def __init__(self, folder: Path, *, size: int = 1) -> None:
        self.memory = folder / "memory"
        self.model = nn.Linear(size, 1, bias=False)
        optimizer = torch.optim.SGD(self.model.parameters())
        env = RankEnv(
            job=job(snapshots__memory_every_steps=1),
            run_id="run",
            snapshot_dir=folder / "snapshots",
            memory_dir=self.memory,
        )
        world = World(env=env, device=torch.device("cpu"))
        self.snapshots = SnapshotManager(world, State(model=self.model, optimizer=optimizer), ORDER)
        self.resumed = ORDER.step(self.snapshots.restore())
        assert not self.resumed or bool((self.model.weight == self.resumed).all())

    def copy(self, *steps: int, wait: bool = True) -> None:
        for step in steps:
            self.model.weight.data.fill_(step)
            self.snapshots.copy_to_memory(Cursor(0, step), {})
            while wait and not self.snapshots.memory_ready:
                pass
        self.model.weight.data.fill_(-1)  # must not change the copy

    def commit(self, step: int) -> None:
        self.model.weight.data.fill_(step)
        self.snapshots.commit(Cursor(0, step), {})

    def copies(self) -> dict[int, Path]:
        return {int(path.name.split("-")[1]): path for path in self.memory.glob("0/step-*")}


@contextmanager
def blocked_completion() -> Iterator[None]:
    """No copy is completed."""
    gate, write_tail = threading.Event(), shards.write_tail

    def wait_and_write(*args: Any) -> shards.Shard:
        gate.wait()
        return write_tail(*args)

    with patch("kittrain.rank.snapshots.files.shards.write_tail", wait_and_write):
        yield
    gate.set()


def test_resuming_from_the_newest_copy_keeps_the_history_valid(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.commit(3)
    first.copy(5, 7, 8)
    assert sorted(first.copies()) == [7, 8]
    second = Run(tmp_path)
    assert (second.resumed, second.snapshots.committed.step) == (8, 3)
    second.commit(9)
    newest = read_manifest(tmp_path / "snapshots" / "step-00000009-g0002")
    assert newest.parent is not None
    assert newest.parent.name == "step-00000003-g0001"
    assert [(entry.generation, entry.last_step) for entry in newest.ledger] == [(1, 8), (2, 9)]
    assert Run(tmp_path).resumed == 9


def test_a_later_snapshot_wins_over_a_copy(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.copy(5)
    first.commit(6)
    assert Run(tmp_path).resumed == 6


def test_no_copy_is_made_while_a_snapshot_with_metrics_is_pending(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.snapshots.begin(Cursor(0, 1), {"loss": 0.5})
    run.copy(2)
    assert not run.copies()
    while not run.snapshots.written:
        pass
    run.snapshots.advance(written=True)
    run.copy(3)
    assert sorted(run.copies()) == [3]


def test_an_incomplete_copy_is_ignored_and_the_previous_one_is_not_overwritten(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.copy(5, 7)
    with blocked_completion():
        first.copy(8, wait=False)
        assert sorted(first.copies()) == [7]
        for _ in range(3):  # each start makes an incomplete first copy
            run = Run(tmp_path)
            assert run.resumed == 7
            run.copy(9, wait=False)
            assert sorted(run.copies()) == [7]
            assert not run.snapshots.memory_ready


def die_while_copying(folder: Path) -> None:
    run = Run(folder)
    run.copy(5, 7)
    with patch.object(Buffer, "copy", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        run.copy(8)


def test_a_rank_killed_while_copying_leaves_the_previous_copy(tmp_path: Path) -> None:
    assert finish(fork(die_while_copying, tmp_path)) == -signal.SIGKILL
    run = Run(tmp_path)
    assert run.resumed == 7
    assert sorted(run.copies()) == [7]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_copy_is_skipped(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.commit(3)
    run.copy(5, 7)
    copies = run.copies()
    damage(copies[7])
    assert Run(tmp_path).resumed == 5
    damage(copies[5])
    assert Run(tmp_path).resumed == 3
    out = capsys.readouterr().out
    logged = (copies[7] / "shard-00000.bin").exists() and damage is not DAMAGE["a bit in the manifest"]
    assert out.count("skipping the in-memory copy of step 7") == (2 if logged else 0)


def test_another_model_does_not_resume_from_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(tmp_path).copy(5)
    assert Run(tmp_path, size=3).resumed == 0
    assert "skipping the in-memory copy of step 5: its model has other parameters" in capsys.readouterr().out


@pytest.mark.needs_root
def test_without_enough_memory_training_continues_without_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tmpfs(tmp_path / "memory", size="1m"):
        run = Run(tmp_path, size=200_000)  # 0.8 MB: one copy would fit
        run.copy(5, wait=False)
        assert not run.snapshots.memory_ready
        assert not list(run.memory.iterdir())
        run.commit(7)
        assert Run(tmp_path, size=200_000).resumed == 7
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "the state is not copied to main memory: rank 0: 2 x 0.8 MiB in " in warnings[0]
    assert "No space left on device" in warnings[0]


def test_after_a_copy_that_could_not_be_completed_there_are_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.copy(1)  # and wait until it is complete
    with patch.object(shards, "write_tail", side_effect=OSError("no memory is left")):
        run.copy(2, wait=False)
        run.snapshots._memory.close()  # it is complete then
    assert not run.snapshots.memory_ready
    assert "no more copies of the state in main memory after step 2" in "".join(capsys.readouterr())
    assert set(run.copies()) == {1}
