"""A state is read block by block, from verified bytes; a partially read state is never trained on."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import catalogue, snapshot
from kittrain.rank.snapshots.folder.archive import SnapshotError
from tests.trainer.resumed import Learner, assert_alike
from tests.trainer.runs import flip
from tests.trainer.saved import DATA, PIECES, in_memory, manifest, weights_of, write_shards
from tests.trainer.worlds import finish, fork

SHARDS, FILES = 1024, 256  # a snapshot of a large world, and a container's limit


def learner(folder: Path, *, seed: int = 0, from_scratch: bool = False) -> Learner:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 500), nn.Tanh(), nn.Linear(500, 2))
    return Learner(folder, model, lambda model: torch.optim.Adam(model.parameters()), from_scratch=from_scratch)


def shard_of(folder: Path, step: int) -> Path:
    (path,) = folder.glob(f"step-*{step}-g0001/shard-00000.bin")
    return path


def damage_the_end(path: Path) -> None:
    """Damage the end of the data; everything before it is good."""
    flip(path, snapshot.read_manifest(path.parent).shards[0].data - 5)


@contextmanager
def small_chunks() -> Iterator[None]:
    with (
        patch("kittrain.rank.snapshots.files.shards.CHUNK", 1000),
        patch("kittrain.rank.snapshots.files.blocks.BLOCK", 3000),
    ):
        yield


def test_a_partially_read_state_is_overwritten_by_the_previous_snapshot(tmp_path: Path) -> None:
    first, undisturbed = learner(tmp_path / "run"), learner(tmp_path / "undisturbed")
    undisturbed.train(2)
    with small_chunks():
        for step in (2, 4):
            first.train(step)
            first.save()
    damage_the_end(shard_of(tmp_path / "run", 4))
    second = learner(tmp_path / "run", seed=1)
    assert second.step == 2
    assert_alike(second, undisturbed)


def test_a_partially_read_state_without_an_alternative_is_an_error(tmp_path: Path) -> None:
    first = learner(tmp_path)
    first.train(1)
    with small_chunks():
        first.save()
    damage_the_end(shard_of(tmp_path, 1))
    with pytest.raises(SnapshotError, match="after a part of it had been loaded"):
        learner(tmp_path, from_scratch=True)
    assert learner(tmp_path, from_scratch=True).step == 0  # the damaged one is quarantined


def test_short_reads_are_continued(tmp_path: Path) -> None:
    scratch, described = write_shards(tmp_path, manifest())
    pread = os.pread
    with patch("os.pread", lambda descriptor, size, offset: pread(descriptor, min(size, 100), offset)):
        for data, shard in zip(DATA, snapshot.open_shards(scratch, described), strict=True):
            shard.verify()
            assert shard.read(0, len(data)) == data


def test_an_empty_read_is_damage(tmp_path: Path) -> None:
    scratch, described = write_shards(tmp_path, manifest())
    shard, *_ = snapshot.open_shards(scratch, described)
    with patch("os.pread", lambda *_: b""), pytest.raises(CorruptError, match="differs from its checksum"):
        shard.read(0, 10)


@pytest.fixture
def few_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_a_snapshot_may_have_more_shards_than_open_files_are_allowed(tmp_path: Path) -> None:
    described = manifest(1)
    scratch = tmp_path / f"{snapshot.SCRATCH}{described.name}"
    scratch.mkdir()
    written = [
        shards.write(scratch / shards.name(number), [in_memory(DATA[0])], [_piece(number)], {})
        for number in range(SHARDS)
    ]
    described = replace(described, shards=tuple(written))
    snapshot.write_manifest(scratch, described)
    path = tmp_path / described.name
    snapshot.publish(scratch, path)
    assert snapshot.verify(path) == described
    assert [one.condition for one in catalogue.inspect_all(tmp_path)] == ["whole"]
    assert [one.condition for one in catalogue.inspect_all(tmp_path, verify=True)] == ["verified"]
    assert weights_of(path)["weights"].numel() == SHARDS * len(DATA[0])
    (info,) = catalogue.inspect_all(tmp_path)
    assert [one.size for one in catalogue.parameters(info, described)] == [SHARDS * len(DATA[0])]


def _piece(number: int) -> shards.Piece:
    size = len(DATA[0])
    assert PIECES[0].stop == size
    return shards.Piece(
        tensor="model/weights",
        dtype="uint8",
        shape=(SHARDS * size,),
        offsets=(number * size,),
        sizes=(size,),
        start=0,
        stop=size,
    )


LAYERS, WIDTH = 10, 1000
STATE = LAYERS * WIDTH * WIDTH * 4 * 3  # bytes: weights and Adam's two moments
ALLOWED = 40 << 20  # bytes besides: a block, a chunk, and the allocator's overhead


def large(folder: Path) -> Learner:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    return Learner(folder, model, lambda model: torch.optim.Adam(model.parameters()))


def save_large(folder: Path) -> None:
    learner = large(folder)
    for parameter in learner.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    learner.optimizer.step()
    learner.step = 1
    learner.save()


def restore_large(folder: Path) -> None:
    learner = large(folder)
    assert learner.step == 1
    assert resident("VmRSS") > STATE
    assert resident("VmHWM") - resident("VmRSS") < ALLOWED < STATE / 2


def resident(name: str) -> int:
    """Resident bytes of this process: now (VmRSS), or the peak (VmHWM)."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name)]
    return int(line.split()[1]) * 1024


def test_a_restore_needs_no_memory_for_a_second_state(tmp_path: Path) -> None:
    for act in (save_large, restore_large):
        assert finish(fork(act, tmp_path)) == 0
