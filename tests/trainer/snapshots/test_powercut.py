"""A power cut at any system call: committed snapshots are complete, and a finished run has its model file.

And every sync is necessary: without any one of them some power cut loses data.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kittrain.outcome import marker
from kittrain.snapshots import snapshot
from kittrain.snapshots.fence import Fence
from kittrain.snapshots.shards import CorruptError
from kittrain.system import files
from tests.trainer.powercut import Cut, Record, apply_cut, cuts
from tests.trainer.saved import archive, manifest, newest, publish, write_shards

WEIGHTS = b"weights" * 1000


def quiet(_line: str) -> None:
    """Discard log lines."""


def publishing(folder: Path, record: Record) -> None:
    """Publish a snapshot, then delete the one before."""
    saved = archive(folder, quiet, keep=1)
    with record.recording():
        scratch, described = write_shards(folder, manifest(3))
        saved.publish(described, scratch)
        record.mark("published")
        saved.apply_retention()
    assert [path.name for path in folder.glob("step-*")] == [described.name]


def published(folder: Path, marks: set[str]) -> bool:
    """All folders with a snapshot's name are complete, and the newest is at least the last committed one."""
    try:
        found = {snapshot.verify(path).step for path in folder.glob("step-*")}
    except CorruptError:
        return False
    return max(found, default=0) >= (3 if "published" in marks else 1)


def claiming(folder: Path, record: Record) -> None:
    """Claim in a folder that does not exist yet."""
    shutil.rmtree(folder)
    with record.recording():
        generation = archive(folder, quiet).claim()
    record.mark(f"{Fence(folder).read_claim(generation)}")


def claimed(folder: Path, marks: set[str]) -> bool:
    """A claim that was returned exists, so that no other process gets the same generation."""
    return not marks or {Fence(folder).read_claim(1)} == marks


def finishing(folder: Path, record: Record) -> None:
    saved = archive(folder, quiet)
    saved.claim()
    with record.recording():
        saved.finish([WEIGHTS[:3000], WEIGHTS[3000:]], 3)
    record.mark("finished")


def finished(folder: Path, marks: set[str]) -> bool:
    """If the marker exists, so does the model file that it names."""
    if not marker.finished(folder, "run-1"):
        return "finished" not in marks
    model, text = folder / "model.pt", marker.path(folder, "run-1").read_text()
    return "model.pt" in text and model.exists() and model.read_bytes() == WEIGHTS


def replacing(folder: Path, record: Record) -> None:
    with record.recording():
        files.replace(folder / "file", b"newer and longer")
    record.mark("replaced")


def replaced(folder: Path, marks: set[str]) -> bool:
    path = folder / "file"
    content = path.read_bytes() if path.exists() else b"none"
    return content == b"newer and longer" or ("replaced" not in marks and content == b"old")


SCENES = {
    "publish": (publishing, published),
    "claim": (claiming, claimed),
    "finish": (finishing, finished),
    "replace": (replacing, replaced),
}


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Record, Callable[[Path, set[str]], bool], Path]:
    act, holds = SCENES[request.param]
    folder = tmp_path / "root" / "snapshots"
    folder.parent.mkdir()
    archive(folder, quiet).claim()
    publish(archive(folder, quiet), folder, manifest(1))
    (folder / "file").write_bytes(b"old")
    record = Record(folder.parent)
    act(folder, record)
    return record, holds, tmp_path / "cut"


def broken_by(
    record: Record, holds: Callable[[Path, set[str]], bool], target: Path, *, without: int | None = None
) -> Cut | None:
    """A cut that loses data."""
    for cut in cuts(record, after=without or 0):
        marks = apply_cut(record, cut, target, without=without)
        held = holds(target / "snapshots", marks)
        shutil.rmtree(target)
        if not held:
            return cut
    return None


def test_no_power_cut_loses_what_was_committed(
    scene: tuple[Record, Callable[[Path, set[str]], bool], Path],
) -> None:
    record, holds, target = scene
    assert len(record.calls) >= 6
    assert broken_by(record, holds, target) is None


def test_every_sync_is_necessary(scene: tuple[Record, Callable[[Path, set[str]], bool], Path]) -> None:
    record, holds, target = scene
    syncs = [number for number, (name, *_) in enumerate(record.calls) if name == "fsync"]
    assert syncs
    needless = [record.calls[number] for number in syncs if broken_by(record, holds, target, without=number) is None]
    assert needless == []


def test_a_run_resumes_after_any_power_cut(tmp_path: Path) -> None:
    """Nothing is quarantined, and unfinished files are deleted."""
    folder = tmp_path / "root" / "snapshots"
    folder.parent.mkdir()
    archive(folder, quiet).claim()
    publish(archive(folder, quiet), folder, manifest(1))
    record = Record(folder.parent)
    publishing(folder, record)
    for number in range(len(record.calls) + 1):
        target = tmp_path / str(number)
        apply_cut(record, Cut(number, "torn", "all", "all"), target)
        found = newest(target / "snapshots", quiet)
        assert found is not None
        archive(target / "snapshots", quiet).claim()
        names = [path.name for path in (target / "snapshots").iterdir()]
        assert not [name for name in names if name.startswith((".tmp-", "bad-"))]
