"""The toy workload, whose moments tests choose."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from kittrain import Step, World
from kittrain.job.env import RankEnv
from kittrain.rank.world.order import Cursor
from kittrain.workloads import toy


def test_training_waits_at_each_of_these_steps_until_its_file_is_there(tmp_path: Path) -> None:
    first, second, records = tmp_path / "first", tmp_path / "second", tmp_path / "records"
    args = toy.options().parse_args(["1", "--wait-at", "2", str(first), "--wait-at", "4", str(second)])
    world = World(env=RankEnv(), device=torch.device("cpu"))
    record = toy.Record(records, world)
    observe = toy.observer(args, world, record)

    def train() -> None:
        for number in range(1, 6):
            record.add_batch(torch.tensor([number]))
            observe(Step(number=number, generation=1, cursor=Cursor(0, number), ids=[number], size=1))

    def taken() -> int:
        return sum(len(path.read_text().splitlines()) for path in records.glob("*.jsonl"))

    training = threading.Thread(target=train)
    training.start()
    for file, step in ((first, 2), (second, 4)):
        while taken() < step:
            time.sleep(0.01)
        training.join(0.2)
        assert (training.is_alive(), taken()) == (True, step)
        file.touch()
    training.join()
    assert taken() == 5


def test_training_is_slow_from_a_step_on_until_its_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep, this = time.sleep, threading.get_ident()

    def slow(seconds: float) -> None:
        if threading.get_ident() == this:
            slept.append(seconds)
        else:  # of another test
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", slow)
    args = toy.options().parse_args(["1", "--slow-from", "3", str(tmp_path / "file")])
    world = World(env=RankEnv(), device=torch.device("cpu"))
    record = toy.Record(None, world)
    observe = toy.observer(args, world, record)
    for number, expected in ((1, 0), (2, 0), (3, 1), (4, 2), (5, 2), (6, 2)):
        record.add_batch(torch.tensor([number]))
        if number == 5:
            (tmp_path / "file").touch()
        observe(Step(number=number, generation=1, cursor=Cursor(0, number), ids=[number], size=1))
        assert slept == [toy.SLOW] * expected
