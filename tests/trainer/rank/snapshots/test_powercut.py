"""A power cut at any system call: committed snapshots are complete, and a finished run has its model file.

And every sync is necessary: without any one of them some power cut loses data.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kittrain.agent.setup import workdir
from kittrain.helper import code_store
from kittrain.integrations import checkpoints
from kittrain.outcome import marker
from kittrain.rank.snapshots.files import file_part
from kittrain.rank.snapshots.files.shards import CorruptError, Piece
from kittrain.rank.snapshots.folder import catalogue, snapshot
from kittrain.rank.snapshots.folder.fence import Fence
from kittrain.system import files
from kittrain.system.make_once import make_once
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


def publishing_again(folder: Path, record: Record) -> None:
    """Publish a snapshot in place of one of the same step, such as one that gets a metric."""
    saved = archive(folder, quiet)
    with record.recording():
        scratch, described = write_shards(folder, manifest(1, metrics={"loss": 1.0}))
        saved.publish(described, scratch)
        record.mark("published")
    assert not list(folder.glob(".*replaced*"))


def published_again(folder: Path, marks: set[str]) -> bool:
    """A start finds the old one or the new one."""
    snapshot.restore_replaced(folder)
    try:
        [found] = [snapshot.verify(path) for path in folder.glob("step-*")]
    except (CorruptError, ValueError):
        return False
    return found.metrics == {"loss": 1.0} or (not found.metrics and "published" not in marks)


def deleting(folder: Path, record: Record) -> None:
    """Delete a snapshot as ``kitctl snapshots prune`` does."""
    publish(archive(folder, quiet), folder, manifest(3))
    with record.recording():
        found = catalogue.inspect_all(folder, verify=True)
        catalogue.delete(found, [manifest(1).name], keep=1, damaged=False)


def deleted(folder: Path, _marks: set[str]) -> bool:
    """The deleted one is complete or not there: none is damaged."""
    try:
        steps = {snapshot.verify(path).step for path in folder.glob("step-*")}
    except CorruptError:
        return False
    return steps in ({1, 3}, {3})


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


def finishing_together(folder: Path, record: Record) -> None:
    """Three ranks on three machines write the model file."""
    saved, scratch, third = archive(folder, quiet), ".tmp-model", len(WEIGHTS) // 3
    saved.claim()
    with record.recording():
        saved.begin_model(scratch, len(WEIGHTS))
        parts = [_part(folder / scratch, record, rank, rank * third, third) for rank in range(3)]
        record.writer = "rank 0"
        rest = 3 * third
        probes = [part.probe for part in parts if part.probe]
        assert saved.complete_model(scratch, [(rest, WEIGHTS[rest:])], probes)
        saved.finish(None, 3, written=True)
    record.mark("finished")


def _part(path: Path, record: Record, rank: int, start: int, size: int) -> file_part.Part:
    record.writer = f"machine of rank {rank}"
    facts = {"tensor": "weights", "dtype": "uint8", "shape": (len(WEIGHTS),), "offsets": (start,), "sizes": (size,)}
    piece = Piece(**facts, start=0, stop=size)  # type: ignore[arg-type]  # of different types
    return file_part.write(path, [piece], {"weights": 0}, lambda _: memoryview(WEIGHTS)[start : start + size])


def completing(folder: Path, record: Record) -> None:
    """Mark a framework's checkpoint as complete, then delete the one before."""
    files.make_folder(folder / "trained")
    _complete(folder / "trained", 1)
    with record.recording():
        _complete(folder / "trained", 2)
        record.mark("completed")
        checkpoints.prune(folder / "trained", "checkpoint-", keep=1)


def _complete(folder: Path, step: int) -> None:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir()
    (checkpoint / "weights").write_bytes(WEIGHTS)
    checkpoints.sync(checkpoint)
    checkpoints.complete(checkpoint, checkpoints.Marker(step=step, ranks=3))


def completed(folder: Path, marks: set[str]) -> bool:
    """The newest complete one is at least the last that was marked, and all complete ones have their files."""
    found = [one for one in (folder / "trained").iterdir() if checkpoints.Marker.read(one)]
    steps = [int(one.name[-1]) for one in found if (one / "weights").exists()]
    whole = len(steps) == len(found) and all((one / "weights").read_bytes() == WEIGHTS for one in found)
    return whole and max(steps, default=0) >= (2 if marks else 1)


def replacing(folder: Path, record: Record) -> None:
    with record.recording():
        files.replace(folder / "file", b"newer and longer")
    record.mark("replaced")


def replaced(folder: Path, marks: set[str]) -> bool:
    path = folder / "file"
    content = path.read_bytes() if path.exists() else b"none"
    return content == b"newer and longer" or ("replaced" not in marks and content == b"old")


def _fill(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def rewriting(folder: Path, record: Record) -> None:
    """Change a file of a complete checkpoint, as for one that a Trainer would not have written."""
    files.make_folder(folder / "trained")
    _complete(folder / "trained", 1)
    with record.recording():
        path = folder / "trained" / "checkpoint-1" / "weights"
        checkpoints.rewrite(path, partial(_fill, b"changed"))
    record.mark("rewritten")
    assert not list(folder.rglob(".tmp-*"))


def rewritten(folder: Path, marks: set[str]) -> bool:
    """The file is the old or the new one."""
    found = (folder / "trained" / "checkpoint-1" / "weights").read_bytes()
    return found == b"changed" or (found == WEIGHTS and not marks)


SENT = {hashlib.sha256(one).hexdigest(): one for one in (b"print(1)\n" * 99, b"print(2)\n")}


def receiving(folder: Path, record: Record) -> None:
    """Store what a client sends to a claim."""
    with record.recording():
        code_store.receive(folder, _archive(SENT))
    record.mark("received")


def _archive(blobs: Mapping[str, bytes]) -> io.BytesIO:
    tree = b"{}"
    contents = {f"blobs/{digest}": content for digest, content in blobs.items()}
    contents[f"trees/{hashlib.sha256(tree).hexdigest()}.json"] = tree
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    out.seek(0)
    return out


def received(folder: Path, marks: set[str]) -> bool:
    """What has a digest's name has its content: a client that finds it there does not send it again."""
    blobs = {path.name: path.read_bytes() for path in folder.glob("blobs/[!.]*")}
    trees = [path.read_bytes() for path in folder.glob("trees/[!.]*")]
    whole = blobs.items() <= SENT.items() and trees in ([], [b"{}"])
    return whole and (not marks or (blobs == SENT and len(trees) == 1))


def unpacking(folder: Path, record: Record) -> None:
    """Unpack a node's working folder, which is kept on the claim."""
    tree = {"version": 1, "links": {}, "files": {"a.py": {"sha256": next(iter(SENT)), "size": 1}}}
    encoded = json.dumps(tree).encode()
    for name, content in {**SENT, hashlib.sha256(encoded).hexdigest(): encoded}.items():
        place = folder / "code" / ("blobs" if name in SENT else "trees") / (name + ("" if name in SENT else ".json"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    with record.recording():
        workdir.unpack(hashlib.sha256(encoded).hexdigest(), folder / "code", folder / "outputs" / "node-0")
    record.mark("unpacked")


def unpacked(folder: Path, marks: set[str]) -> bool:
    """A folder that counts as unpacked has its files."""
    place = folder / "outputs" / "node-0"
    if not (place / workdir.MARKER).is_file() or not (place / workdir.MARKER).read_bytes():
        return not marks
    return (place / "a.py").is_file() and (place / "a.py").read_bytes() == next(iter(SENT.values()))


def making(folder: Path, record: Record) -> None:
    """Install packages for all nodes."""
    with record.recording():
        make_once(folder / "packages", lambda content: _fill(WEIGHTS, content / "module.py"))
        record.mark("made")


def made(folder: Path, _marks: set[str]) -> bool:
    """The folder is not there, and made again, or is complete."""
    found = folder / "packages"
    return not found.exists() or {one.name: one.read_bytes() for one in found.iterdir()} == {"module.py": WEIGHTS}


SCENES = {
    "rewrite in a checkpoint": (rewriting, rewritten),
    "receive a folder": (receiving, received),
    "unpack a folder": (unpacking, unpacked),
    "make once": (making, made),
    "publish": (publishing, published),
    "publish again": (publishing_again, published_again),
    "delete": (deleting, deleted),
    "claim": (claiming, claimed),
    "finish": (finishing, finished),
    "finish together": (finishing_together, finished),
    "complete a checkpoint": (completing, completed),
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
    record: Record, holds: Callable[[Path, set[str]], bool], target: Path, *, without: int | None = None, after: int = 0
) -> Cut | None:
    """A cut that loses data."""
    for cut in cuts(record, after=without or after):
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
    syncs = [number for number, (name, *_) in enumerate(record.calls) if name in {"fsync", "sync_all"}]
    assert syncs
    needless = [record.calls[number] for number in syncs if broken_by(record, holds, target, without=number) is None]
    # The replaced folder is moved away durably first: for file systems whose renames of two folders are not ordered.
    assert len(needless) == (holds is published_again), needless


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


def test_a_power_cut_while_a_killed_writer_is_succeeded(tmp_path: Path) -> None:
    """What the killed one renamed and did not sync is not yet on the disk when its successor tidies up."""
    folder = tmp_path / "root" / "snapshots"
    folder.parent.mkdir()
    archive(folder, quiet).claim()
    publish(archive(folder, quiet), folder, manifest(1))
    first = Record(folder.parent)
    publishing_again(folder, first)
    [*_, replaced] = [number for number, (name, *_) in enumerate(first.calls) if name == "rename"]
    for kill in (replaced, replaced + 1):  # before and after the new one has its name
        second = first.killed(kill, tmp_path / f"killed-{kill}")
        start = len(second.calls)
        with second.recording():
            archive(second.root / "snapshots", quiet).claim()
        assert broken_by(second, published_again, tmp_path / "cut", without=None, after=start) is None, kill


def test_a_file_that_is_synced_is_known_whatever_file_had_its_number(tmp_path: Path) -> None:
    """A thread may open one between: the number of the file that was written is taken then."""
    record, path = Record(tmp_path), tmp_path / "file"
    with record.recording():
        path.write_bytes(b"new")
        with Path("/dev/null").open("rb"), path.open("rb") as again:
            os.fsync(again.fileno())
        with Path("/dev/null").open("rb") as elsewhere, suppress(OSError):
            os.fsync(elsewhere.fileno())
    assert [(name, *args[:1]) for name, *args in record.calls][-1:] == [("fsync", Path("file"))]
    assert [name for name, *_ in record.calls] == ["create", "write", "fsync"]
