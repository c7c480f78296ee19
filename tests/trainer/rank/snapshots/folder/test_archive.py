"""Rank 0's writes to a folder of snapshots: claims, publishing, retention."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kittrain.outcome import marker
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.fence import Fence, Fenced
from kittrain.system.storage import StorageUnavailableError
from tests.trainer import saved
from tests.trainer.mounts import make_read_only, tmpfs
from tests.trainer.nodes import TIMEOUT
from tests.trainer.saved import archive, continued, manifest, publish, save, write_shards
from tests.trainer.storage import UNREADABLE, failing, short_retries
from tests.trainer.worlds import finish, fork


@pytest.fixture(autouse=True)
def _short_retries() -> Iterator[None]:
    with short_retries():
        yield


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def newest(folder: Path) -> str | None:
    found = saved.newest(folder)
    return found.name if found else None


def test_retention_keeps_the_last_snapshots_of_the_run(tmp_path: Path) -> None:
    save(tmp_path, manifest(9, 1, run="run-0"))
    (tmp_path / "bad-step-00000001-g0002").mkdir()
    mine = archive(tmp_path, keep=2)
    assert mine.claim() == 3, "a quarantined snapshot's generation counts, too"
    for steps in (1, 2, 3):
        publish(mine, tmp_path, manifest(steps, 3))
    assert names(tmp_path) == [
        "bad-step-00000001-g0002",
        "step-00000002-g0003",
        "step-00000003-g0003",
        "step-00000009-g0001",
    ]


def test_retention_deletes_only_ancestors_of_the_newest(tmp_path: Path) -> None:
    """An abandoned branch of this run and unreadable snapshots are kept."""
    for steps in (1, 2, 3):
        save(tmp_path, manifest(steps, 1))
    resumed = save(tmp_path, manifest(4, 2, ledger=continued(manifest(2, 1), 4, generation=2)))
    (tmp_path / "step-00000001-g0001" / "manifest.json").unlink()
    (tmp_path / "step-00000001-g0001" / "manifest.json").symlink_to(UNREADABLE)
    mine = archive(tmp_path, keep=1)
    assert mine.claim() == 3
    publish(mine, tmp_path, manifest(5, 3, ledger=continued(resumed, 5, generation=3)))
    assert names(tmp_path) == [
        "step-00000001-g0001",  # unreadable
        "step-00000003-g0001",  # generation 2 resumed from step 2
        "step-00000005-g0003",
    ]


def test_retention_deletes_nothing_if_the_folder_cannot_be_listed(tmp_path: Path) -> None:
    mine = archive(tmp_path, keep=1)
    mine.claim()
    for steps in (1, 2):
        scratch, described = write_shards(tmp_path, manifest(steps, 1))
        mine.publish(described, scratch)
    with failing(tmp_path, errno.EIO):
        mine.apply_retention()
    assert names(tmp_path) == ["step-00000001-g0001", "step-00000002-g0001"]


def test_a_claim_is_retried_while_the_storage_does_not_respond(tmp_path: Path) -> None:
    lines: list[str] = []
    with failing(tmp_path, errno.ESTALE, times=3):
        assert archive(tmp_path, lines.append).claim() == 1
    assert len(lines) == 1
    with (
        failing(tmp_path, errno.ESTALE),
        pytest.raises(StorageUnavailableError, match=f"Stale file handle.*{tmp_path}"),
    ):
        archive(tmp_path).claim()


def test_a_claim_succeeds_while_a_fenced_off_writer_still_writes(tmp_path: Path) -> None:
    """The fenced-off writer keeps creating its folder and shards."""
    writer = fork(write_for_ever, tmp_path)
    try:
        deadline = time.monotonic() + TIMEOUT
        while not any(tmp_path.glob(".tmp-step-*")):
            assert time.monotonic() < deadline, "the writer has not started"
        assert [archive(tmp_path).claim() for _ in range(100)] == list(range(1, 101))
        assert writer.is_alive()
    finally:
        writer.kill()
        writer.join()


def write_for_ever(folder: Path) -> None:
    while True:
        scratch = folder / f".tmp-{manifest(1, 0).name}"
        with suppress(OSError):
            scratch.mkdir(exist_ok=True)
            for number in range(3):
                (scratch / f"shard-{number:05}.bin").write_bytes(bytes(100))
        with suppress(OSError):
            (folder / ".tmp-model.pt.7").write_bytes(bytes(100))


def test_a_claim_deletes_only_scratch_files_that_existed_before_it(tmp_path: Path) -> None:
    """A writer that starts after the claim may hold a newer one."""
    archive(tmp_path).claim()
    old, new = tmp_path / ".tmp-step-00000001-g0001", tmp_path / ".tmp-step-00000002-g0003"
    (old / "part").mkdir(parents=True)
    (tmp_path / ".tmp-model.pt.17").touch()
    claim = Fence.claim

    def claimed_and_overtaken(*args: Any, **kwargs: Any) -> int:
        generation = claim(*args, **kwargs)
        new.mkdir()
        return generation

    with patch.object(Fence, "claim", claimed_and_overtaken):
        assert archive(tmp_path).claim() == 2
    assert [path.name for path in tmp_path.glob(".tmp-*")] == [new.name]


def test_a_fenced_off_archive_cannot_finish(tmp_path: Path) -> None:
    stale = archive(tmp_path)
    stale.claim()
    archive(tmp_path).claim()
    with pytest.raises(Fenced):
        stale.finish([b"weights"], 3)
    assert not marker.finished(tmp_path, "run-1")
    assert not (tmp_path / "model.pt").exists()


def test_copied_snapshots_count_as_claims(tmp_path: Path) -> None:
    save(tmp_path, manifest(3, 7))
    assert [archive(tmp_path).claim() for _ in range(2)] == [8, 9]


def test_a_stale_writer_fails_and_leaves_no_files(tmp_path: Path) -> None:
    stale, fresh = archive(tmp_path), archive(tmp_path)
    assert stale.claim() == 1
    publish(stale, tmp_path, manifest(1, 1))
    assert fresh.claim() == 2
    with pytest.raises(Fenced, match="generation 2 has taken over"):
        publish(stale, tmp_path, manifest(2, 1))
    assert names(tmp_path) == ["step-00000001-g0001"]
    publish(fresh, tmp_path, manifest(2, 2))


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SnapshotError, match=f"no snapshots can be written to {blocked}"):
        archive(blocked).claim()


@pytest.mark.needs_root
def test_a_full_disk_leaves_the_last_good_snapshot(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="100k") as disk:
        archive(disk).claim()
        publish(archive(disk), disk, manifest(1))
        with (disk / "others").open("wb", buffering=0) as others, suppress(OSError):
            while True:
                others.write(bytes(4096))
        with pytest.raises(OSError, match="No space left on device"):
            publish(archive(disk), disk, manifest(2))
        assert newest(disk) == "step-00000001-g0001"
        (disk / "others").unlink()
        publish(archive(disk), disk, manifest(3))
        assert newest(disk) == "step-00000003-g0001"


@pytest.mark.needs_root
def test_a_read_only_disk_is_an_error_and_its_snapshots_are_found(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="100k") as disk:
        archive(disk).claim()
        publish(archive(disk), disk, manifest(1))
        make_read_only(disk)
        assert newest(disk) == "step-00000001-g0001"
        with pytest.raises(SnapshotError, match=f"no snapshots can be written to {disk}: .*Read-only file system"):
            archive(disk).claim()


def test_no_space_leaves_the_last_good_snapshot(tmp_path: Path) -> None:
    archive(tmp_path).claim()
    publish(archive(tmp_path), tmp_path, manifest(1))
    assert finish(fork(publish_without_space, tmp_path)) == 0
    assert names(tmp_path) == ["step-00000001-g0001"]
    assert newest(tmp_path) == "step-00000001-g0001"


def publish_without_space(folder: Path) -> None:
    """The system refuses to write more than 5,000 bytes to a file, as if the disk were full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    with pytest.raises(OSError) as caught:  # noqa: PT011  errno is checked below
        publish(archive(folder), folder, manifest(2))
    assert caught.value.errno == errno.EFBIG


def test_a_snapshot_of_the_same_step_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    mine = archive(tmp_path, keep=2)
    mine.claim()
    for accuracy in (0.25, 0.5):
        publish(mine, tmp_path, manifest(3, 1, metrics={"accuracy": accuracy}))
    found = saved.newest(tmp_path)
    assert found
    assert found.metrics == {"accuracy": 0.5}
    assert [one.name for one in tmp_path.iterdir() if "step" in one.name] == [found.name]


def test_a_snapshot_whose_replacement_was_interrupted_is_used(tmp_path: Path) -> None:
    first = save(tmp_path, manifest(3, 1))
    with pytest.raises(FileNotFoundError):
        snapshot.publish(tmp_path / ".tmp-lost", tmp_path / first.name)
    assert names(tmp_path) == [first.name], "the one before is back at once"
    replaced = tmp_path / f"{snapshot.REPLACED}{first.name}"
    (tmp_path / first.name).rename(replaced)  # and killed
    assert newest(tmp_path) is None
    archive(tmp_path, keep=1).claim()
    assert newest(tmp_path) == first.name
    (tmp_path / first.name).rename(replaced)
    second = save(tmp_path, manifest(3, 1, metrics={"accuracy": 0.5}))  # and killed
    archive(tmp_path, keep=1).claim()
    found = saved.newest(tmp_path)
    assert found == second
    assert not replaced.exists()


@pytest.mark.parametrize("kept", [0, 100, -1], ids=["emptied", "truncated", "one byte short"])
def test_a_shard_that_is_damaged_before_publishing_is_found_then(tmp_path: Path, kept: int) -> None:
    """At a restore it would be too late."""
    mine = archive(tmp_path)
    mine.claim()
    publish(mine, tmp_path, manifest(1, 1))
    scratch, described = write_shards(tmp_path, manifest(2, 1))
    shard = scratch / shards.name(1)
    os.truncate(shard, kept if kept >= 0 else shard.stat().st_size + kept)
    with pytest.raises(CorruptError):
        mine.publish(described, scratch)
    assert names(tmp_path) == ["step-00000001-g0001"]
