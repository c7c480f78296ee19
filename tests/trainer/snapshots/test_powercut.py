"""The power fails at any system call: what was committed is whole, and what is finished has its model.

And no sync is idle: without any one of them there is a cut that loses something.
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
from tests.trainer.powercut import Cut, Record, cuts, left
from tests.trainer.saved import archive, manifest, newest, publish, write_shards

WEIGHTS = b"weights" * 1000


def quiet(_line: str) -> None:
    """Nobody reads it."""


def publishing(folder: Path, record: Record) -> None:
    """A snapshot, and then the one before is dropped."""
    saved = archive(folder, quiet, keep=1)
    with record.recording():
        scratch, described = write_shards(folder, manifest(3))
        saved.publish(described, scratch)
        record.mark("published")
        saved.thin_out()
    assert [path.name for path in folder.glob("step-*")] == [described.name]


def published(folder: Path, marks: set[str]) -> bool:
    """All that bears a snapshot's name is one, and none is older than the last committed one."""
    try:
        found = {snapshot.verify(path).step for path in folder.glob("step-*")}
    except CorruptError:
        return False
    return max(found, default=0) >= (3 if "published" in marks else 1)


def claiming(folder: Path, record: Record) -> None:
    """In a folder that does not exist yet."""
    shutil.rmtree(folder)
    with record.recording():
        generation = archive(folder, quiet).claim()
    record.mark(f"{Fence(folder).mark(generation)}")


def claimed(folder: Path, marks: set[str]) -> bool:
    """Who was told a generation has it: nobody else is told the same."""
    return not marks or {Fence(folder).mark(1)} == marks


def finishing(folder: Path, record: Record) -> None:
    saved = archive(folder, quiet)
    saved.claim()
    with record.recording():
        saved.finish([WEIGHTS[:3000], WEIGHTS[3000:]], 3)
    record.mark("finished")


def finished(folder: Path, marks: set[str]) -> bool:
    """Whoever finds the run finished finds its model, and what the mark says about it."""
    if not marker.finished(folder, "run-1"):
        return "finished" not in marks
    model, told = folder / "model.pt", marker.path(folder, "run-1").read_text()
    return "model.pt" in told and model.exists() and model.read_bytes() == WEIGHTS


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
    """A cut that loses something."""
    for cut in cuts(record, behind=without or 0):
        marks = left(record, cut, target, without=without)
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


def test_no_sync_is_idle(scene: tuple[Record, Callable[[Path, set[str]], bool], Path]) -> None:
    record, holds, target = scene
    syncs = [number for number, (name, *_) in enumerate(record.calls) if name == "fsync"]
    assert syncs
    idle = [record.calls[number] for number in syncs if broken_by(record, holds, target, without=number) is None]
    assert idle == []


def test_what_the_power_left_is_gone_on_from(tmp_path: Path) -> None:
    """By the run's own rules: nothing is put aside, and what was half-written is cleared away."""
    folder = tmp_path / "root" / "snapshots"
    folder.parent.mkdir()
    archive(folder, quiet).claim()
    publish(archive(folder, quiet), folder, manifest(1))
    record = Record(folder.parent)
    publishing(folder, record)
    for number in range(len(record.calls) + 1):
        target = tmp_path / str(number)
        left(record, Cut(number, "torn", "all", "all"), target)
        found = newest(target / "snapshots", quiet)
        assert found is not None
        archive(target / "snapshots", quiet).claim()
        names = [path.name for path in (target / "snapshots").iterdir()]
        assert not [name for name in names if name.startswith((".tmp-", "bad-"))]
