"""A snapshot is complete or absent, and damage is found and named."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, IncompatibleError, Parent, read_manifest, verify
from tests.trainer.saved import archive, manifest, newest, publish, save
from tests.trainer.worlds import finish, fork

CALLS = ("mkdir", "open", "write", "fsync", "rename", "unlink", "rmdir")  # of os: all that change the disk
FILES = ("shard-00000.bin", "shard-00001.bin", "manifest.json")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return tmp_path / save(tmp_path, manifest()).name


def test_a_snapshot_is_read_back(tmp_path: Path) -> None:
    written = save(tmp_path, manifest(parent=Parent(name="step-00000001-g0001", digest="d"), metrics={"loss": 0.5}))
    path = tmp_path / "step-00000003-g0001"
    assert read_manifest(path) == verify(path) == written
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert sorted(entry.name for entry in path.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_is_found(snapshot: Path, name: str) -> None:
    content = bytearray((snapshot / name).read_bytes())
    for position in {0, len(content) // 2, len(content) - 2000, len(content) - 1} - {*range(-2000, 0)}:
        for bit in (0, 7):
            content[position] ^= 1 << bit
            (snapshot / name).write_bytes(content)
            with pytest.raises(CorruptError, match=name):
                verify(snapshot)
            content[position] ^= 1 << bit


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_missing_file_is_found(snapshot: Path, name: str) -> None:
    os.truncate(snapshot / name, (snapshot / name).stat().st_size - 1)
    with pytest.raises(CorruptError, match=name):
        verify(snapshot)
    (snapshot / name).unlink()
    with pytest.raises(CorruptError, match=f"{name} is missing"):
        verify(snapshot)


def test_a_changed_manifest_is_detected(snapshot: Path) -> None:
    path = snapshot / "manifest.json"
    path.write_text(path.read_text().replace('"world_size": 2', '"world_size": 3'))
    with pytest.raises(CorruptError, match=r"manifest\.json differs from its digest"):
        read_manifest(snapshot)


def test_a_renamed_snapshot_is_rejected(snapshot: Path) -> None:
    with pytest.raises(CorruptError, match="is that of step-00000003-g0001"):
        read_manifest(snapshot.rename(snapshot.with_name("step-00000009-g0001")))


def test_swapped_shards_are_rejected(snapshot: Path) -> None:
    first, second = snapshot / FILES[0], snapshot / FILES[1]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(CorruptError, match=r"shard-00000\.bin"):
        verify(snapshot)


def test_an_unknown_manifest_key_is_incompatible_not_corrupt(tmp_path: Path) -> None:
    path = tmp_path / save(tmp_path, manifest()).name / MANIFEST
    facts = json.loads(path.read_text()) | {"colour": "green"}
    del facts["digest"]
    text = json.dumps(facts, sort_keys=True, indent=1)
    path.write_text(json.dumps(facts | {"digest": hashlib.sha256(text.encode()).hexdigest()}))
    with pytest.raises(IncompatibleError, match="another version"):
        read_manifest(path.parent)


def test_another_format_is_incompatible_not_corrupt(tmp_path: Path) -> None:
    save(tmp_path, manifest(format=1))
    with pytest.raises(IncompatibleError, match="format 1"):
        read_manifest(tmp_path / "step-00000003-g0001")


def test_a_writer_killed_at_any_moment_leaves_a_good_snapshot(tmp_path: Path) -> None:
    """The writer is killed before or within each system call of a publish, in turn."""
    before = tmp_path / "before"
    archive(before).claim()
    publish(archive(before), before, manifest(1))
    codes, results = [], []
    for number in range(100):
        folder = tmp_path / str(number)
        shutil.copytree(before, folder)
        codes.append(finish(fork(publish_and_die, folder, number)))
        found = newest(folder)
        assert found is not None
        assert not list(folder.glob("bad-*"))
        results.append(found.step)
        archive(folder).claim()
        assert not list(folder.glob(".tmp-*"))
        if codes[-1] == 0:
            break
    assert len(codes) > 20
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert results == sorted(results)  # the old one before the rename, the new one after it
    assert results[0] == 1
    assert results[-1] == 3


def publish_and_die(folder: Path, survived: int) -> None:
    """Publish, and be killed after a number of system calls; a write is killed after half of its bytes."""
    left = iter(range(survived))

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if next(left, None) is None:
                if call is os_write:
                    with suppress(OSError):  # direct I/O writes whole blocks only
                        os_write(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    os_write = os.write
    patches = [patch(f"os.{name}", deadly(getattr(os, name))) for name in CALLS]
    for one in patches:
        one.start()
    publish(archive(folder, keep=1), folder, manifest(3))  # deletes the old one at the end
    for one in patches:
        one.stop()


def test_the_manifest_of_a_finite_state_is_that_of_earlier_versions(tmp_path: Path) -> None:
    finite, broken = save(tmp_path, manifest(1)), save(tmp_path, manifest(2, not_finite="nan"))
    assert "not_finite" not in json.loads((tmp_path / finite.name / MANIFEST).read_text())
    assert read_manifest(tmp_path / finite.name).not_finite == ""
    assert read_manifest(tmp_path / broken.name) == broken
