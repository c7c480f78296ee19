"""Each node has a folder with some of a snapshot's shards: the newest whole one is found, and read from its holders."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kitjob import typed
from kitjob.report import RankProgress
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.folder import copies_status
from kittrain.rank.snapshots.folder.copies_status import CopiesStatus
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from tests.trainer import sharded
from tests.trainer.runs import flip
from tests.trainer.sharded import STEPS, Kind

APART = {"KIT_SNAPSHOTS_STORAGE": "perNode"}
NEWEST, BEFORE = "step-00000008-g0001", "step-00000004-g0001"


def nodes(folder: Path, count: int = 3) -> list[Path]:
    return [folder / f"node-{number}" for number in range(count)]


def copy(folders: Sequence[Path], name: str) -> None:
    """What the process next to each agent does: give each node the shards of the one before."""
    for number in range(len(folders)):
        shutil.copy(folders[number - 1] / name / shards.name((number - 1) % len(folders)), folders[number] / name)


def whole(folder: Path, kind: Kind, epochs: int) -> dict[str, torch.Tensor]:
    """The model of a run that nothing has disturbed, of ranks that share a folder."""
    assert sharded.run([folder / "whole"] * 3, kind, epochs) == [0] * 3
    return load(folder / "whole")


def load(folder: Path) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = torch.load(folder / "model.pt", weights_only=True)
    return model


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sharded", pytest.param("replicated", marks=pytest.mark.wide)])
def test_a_node_is_lost_with_its_folder_and_a_flipped_bit_is_not_read(tmp_path: Path, kind: Kind) -> None:
    folders = nodes(tmp_path)
    assert sharded.run(folders, kind, 2, env=APART) == [0] * 3
    assert not any((folder / "model.pt").exists() for folder in folders[1:])  # it is rank 0's
    for folder in folders[1:]:
        assert [path.name for path in sorted((folder / NEWEST).iterdir())] == [
            "manifest.json",
            shards.name(int(folder.name[-1])),
        ]
    copy(folders, NEWEST)
    shutil.rmtree(folders[0])  # with rank 0
    folders[0].mkdir()
    shutil.copytree(folders[2] / NEWEST, folders[0] / NEWEST)  # a node that has got its part again
    flip(folders[2] / NEWEST / shards.name(2))
    assert sharded.run(folders, kind, 3, env=APART) == [0] * 3
    log = (tmp_path / "log-2").read_text()
    assert f"{NEWEST} on this node: shard-00002.bin" in log
    assert "another node's copy is used" in log
    assert (folders[2] / NEWEST / "bad-shard-00002.bin").exists()
    assert f"resuming after step {2 * STEPS}" in (tmp_path / "log-0").read_text()
    assert_equal(load(folders[0]), whole(tmp_path, kind, 3))


@pytest.mark.slow
@pytest.mark.wide
def test_two_nodes_lost_at_once_fall_back_to_what_is_whole(tmp_path: Path) -> None:
    folders = nodes(tmp_path)
    assert sharded.run(folders, "replicated", 1, env=APART) == [0] * 3
    assert sharded.run(folders, "replicated", 2, env=APART) == [0] * 3
    for folder in folders:
        shutil.copytree(folder / BEFORE, tmp_path / "parts", dirs_exist_ok=True)
    shutil.copytree(tmp_path / "parts", folders[2] / BEFORE, dirs_exist_ok=True)  # this one has all of it
    for folder in folders[:2]:
        shutil.rmtree(folder)
    report = tmp_path / "progress"
    assert sharded.run(folders, "replicated", 3, env=APART | {"KIT_PROGRESS_FILE": str(report)}) == [0] * 3
    told = typed.load(RankProgress, report.read_bytes())
    assert told.not_whole == "no node that is left has 2 of its 3 parts of step 8"
    log = (tmp_path / "log-0").read_text()
    assert f"g0002 is not whole: of its 3 shards no node that is here has 0, 1; going on from {BEFORE}" in log
    assert "resuming after step 4" in log
    newest = max(path for path in folders[0].glob("step-*"))
    assert [entry.generation for entry in read_manifest(newest).ledger] == [1, 3, 3]
    assert_equal(load(folders[0]), whole(tmp_path, "replicated", 3))


@pytest.mark.slow
@pytest.mark.wide
def test_a_later_step_of_an_older_generation_is_not_used(tmp_path: Path) -> None:
    folders = nodes(tmp_path, 2)
    assert sharded.run(folders, "replicated", 2, env=APART) == [0] * 2
    for folder in folders:
        (folder / NEWEST).rename(folder.with_name(f"late-{folder.name}"))
    assert sharded.run(folders, "replicated", 2, env={**APART, "KIT_SNAPSHOTS_EVERY_STEPS": "7"}) == [0] * 2
    for folder in folders:
        shutil.rmtree(folder / "step-00000008-g0002")
        folder.with_name(f"late-{folder.name}").rename(folder / NEWEST)  # a node that was cut off is back
    assert sharded.run(folders, "replicated", 2, env=APART) == [0] * 2
    assert "resuming after step 7" in (tmp_path / "log-0").read_text()


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("was_whole", [True, False])
def test_training_begins_again_only_if_no_snapshot_was_ever_whole(tmp_path: Path, *, was_whole: bool) -> None:
    folders = nodes(tmp_path, 2)
    assert sharded.run(folders, "replicated", 1, env=APART) == [0] * 2
    shutil.rmtree(folders[0])
    if was_whole:
        copies_status.write(folders[1], CopiesStatus(run="run", copied_step=4))
    codes = sharded.run(folders, "replicated", 1, env=APART)
    log = "".join(path.read_text() for path in tmp_path.glob("log-*"))
    assert codes == [1, 1] if was_whole else [0, 0], log
    assert ("no node that is left has some of its parts" in log) == was_whole
