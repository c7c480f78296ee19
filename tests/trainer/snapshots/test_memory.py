"""Copies in memory: they outlive whoever made them, and none is taken that is torn, damaged or overtaken."""

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
from kittrain.env import RankEnv
from kittrain.snapshots import shards
from kittrain.snapshots.history import History
from kittrain.snapshots.layout import Buffer
from kittrain.snapshots.snapshot import read_manifest
from kittrain.snapshots.state import State
from kittrain.world.order import Cursor, Order
from tests.trainer.mounts import tmpfs
from tests.trainer.runs import DAMAGE
from tests.trainer.worlds import finish, fork

ORDER = Order(samples=100, batch=1)


class Run:
    """A lone rank that does not train: its one weight is the step. Its state is what it went on from."""

    def __init__(self, folder: Path, *, size: int = 1) -> None:
        self.memory = folder / "memory"
        self.model = nn.Linear(size, 1, bias=False)
        optimizer = torch.optim.SGD(self.model.parameters())
        env = RankEnv(run_id="run", snapshot_dir=folder / "snapshots", memory_every=1, memory_dir=self.memory)
        world = World(env=env, device=torch.device("cpu"))
        self.history = History(world, State(model=self.model, optimizer=optimizer), ORDER)
        self.begun = ORDER.step(self.history.restore())
        assert not self.begun or bool((self.model.weight == self.begun).all())

    def keep(self, *steps: int, wait: bool = True) -> None:
        for step in steps:
            self.model.weight.data.fill_(step)
            self.history.keep(Cursor(0, step), {})
            while wait and not self.history.kept:
                pass
        self.model.weight.data.fill_(-1)  # what was copied stays as it was

    def commit(self, step: int) -> None:
        self.model.weight.data.fill_(step)
        self.history.commit(Cursor(0, step), {})

    def copies(self) -> dict[int, Path]:
        return {int(path.name.split("-")[1]): path for path in self.memory.glob("0/step-*")}


@contextmanager
def held() -> Iterator[None]:
    """Nothing is sealed."""
    gate, seal = threading.Event(), shards.seal

    def wait_and_seal(*args: Any) -> shards.Shard:
        gate.wait()
        return seal(*args)

    with patch("kittrain.snapshots.shards.seal", wait_and_seal):
        yield
    gate.set()


def test_the_newest_copy_is_gone_on_from_and_the_history_holds(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.commit(3)
    first.keep(5, 7, 8)
    assert sorted(first.copies()) == [7, 8]
    second = Run(tmp_path)
    assert (second.begun, second.history.committed.step) == (8, 3)
    second.commit(9)
    newest = read_manifest(tmp_path / "snapshots" / "step-00000009-g0002")
    assert newest.parent is not None
    assert newest.parent.name == "step-00000003-g0001"
    assert [(entry.generation, entry.last_step) for entry in newest.ledger] == [(1, 8), (2, 9)]
    assert Run(tmp_path).begun == 9


def test_a_snapshot_that_is_further_on_wins(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.keep(5)
    first.commit(6)
    assert Run(tmp_path).begun == 6


def test_nobody_goes_on_behind_what_was_measured_before_that_is_on_disk(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.history.begin(Cursor(0, 1), {"loss": 0.5})
    run.keep(2)
    assert not run.copies()
    while not run.history.written:
        pass
    run.history.advance(written=True)
    run.keep(3)
    assert sorted(run.copies()) == [3]


def test_a_copy_that_was_not_sealed_is_none_and_the_one_before_is_not_touched(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.keep(5, 7)
    with held():
        first.keep(8, wait=False)
        assert sorted(first.copies()) == [7]
        for _ in range(3):  # each is killed while it makes its first copy
            run = Run(tmp_path)
            assert run.begun == 7
            run.keep(9, wait=False)
            assert sorted(run.copies()) == [7]
            assert not run.history.kept


def be_killed_in_a_copy(folder: Path) -> None:
    run = Run(folder)
    run.keep(5, 7)
    with patch.object(Buffer, "copy", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        run.keep(8)


def test_a_rank_that_is_killed_in_a_copy_leaves_the_one_before(tmp_path: Path) -> None:
    assert finish(fork(be_killed_in_a_copy, tmp_path)) == -signal.SIGKILL
    run = Run(tmp_path)
    assert run.begun == 7
    assert sorted(run.copies()) == [7]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_damaged_is_passed_over(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    run.commit(3)
    run.keep(5, 7)
    copies = run.copies()
    damage(copies[7])
    assert Run(tmp_path).begun == 5
    damage(copies[5])
    assert Run(tmp_path).begun == 3
    out = capsys.readouterr().out
    seen = (copies[7] / "shard-00000.bin").exists() and damage is not DAMAGE["a bit in the manifest"]
    assert out.count("passing over the copy in memory of step 7") == (2 if seen else 0)


def test_another_model_does_not_go_on_from_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(tmp_path).keep(5)
    assert Run(tmp_path, size=3).begun == 0
    assert "passing over the copy in memory of step 5: its model has other parameters" in capsys.readouterr().out


@pytest.mark.needs_root
def test_without_room_training_goes_on_without_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tmpfs(tmp_path / "memory", size="1m"):
        run = Run(tmp_path, size=200_000)  # 0.8 MB: one copy would fit
        run.keep(5, wait=False)
        assert not run.history.kept
        assert not list(run.memory.iterdir())
        run.commit(7)
        assert Run(tmp_path, size=200_000).begun == 7
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "the state is not copied to main memory: rank 0: twice 0.8 MiB in " in warnings[0]
    assert "No space left on device" in warnings[0]
