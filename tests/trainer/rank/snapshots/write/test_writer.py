"""A part of the state is written a moment after it was copied, unless training waits for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.write import writer as under_test
from kittrain.rank.snapshots.write.writer import Writer
from tests.trainer.settings import job

FOR_EVER = 1e9


def test_what_training_waits_for_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "PAUSE", FOR_EVER * FOR_EVER)
    monkeypatch.setattr(under_test, "LONGEST_PAUSE", FOR_EVER)
    tensors = {"model/weight": torch.ones(4)}
    with ThreadPoolExecutor(1) as background:
        writer = Writer(World(env=RankEnv(job=job()), device=torch.device("cpu")), background, main_only=False)
        for number in range(2):  # the second one waits again
            writer.begin(tmp_path / str(number), tensors, {})
            assert not writer.idle
            assert not (tmp_path / str(number)).exists()
            writer.reports()
            assert [file.name for file in (tmp_path / str(number)).iterdir()] == ["shard-00000.bin"]
