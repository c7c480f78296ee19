"""Which snapshot a run goes on from, and what becomes of the others."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer import saved
from tests.trainer.mounts import make_read_only, tmpfs
from tests.trainer.saved import archive, manifest, publish, save
from tests.trainer.worlds import finish, fork
from trainer.snapshots.archive import SnapshotError
from trainer.snapshots.fence import Fenced
from trainer.world.order import Order


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def newest(folder: Path, *, resume: bool = False) -> str | None:
    found = saved.newest(folder, resume=resume)
    return found.name if found else None


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert newest(tmp_path) is None


def test_the_newest_generation_wins_whatever_step_a_stale_writer_reached(tmp_path: Path) -> None:
    for steps, generation in ((9, 1), (4, 2), (5, 2)):
        save(tmp_path, manifest(steps, generation))
    assert newest(tmp_path) == "step-00000005-g0002"


def damage_data(path: Path) -> None:
    with (path / "shard-00001.bin").open("r+b") as shard:
        shard.seek(2500)
        shard.write(b"weighty")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (damage_data, "shard-00001.bin differs from its checksum between bytes 2000 and 3000"),
        (lambda path: os.truncate(path / "shard-00000.bin", 2000), "shard-00000.bin has 2000 bytes"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: (path / "shard-00001.bin").unlink(), "shard-00001.bin is missing"),
        (lambda path: (path / "manifest.json").write_bytes(b"\xff"), "manifest.json is not readable"),
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json is not readable"),
    ],
)
def test_a_damaged_one_is_kept_and_named_and_the_one_before_is_used(tmp_path: Path, damage, told) -> None:
    for steps in (2, 3):
        save(tmp_path, manifest(steps))
    damage(tmp_path / "step-00000003-g0001")
    said: list[str] = []
    found = saved.newest(tmp_path, said.append)
    assert found is not None
    assert found.step == 2
    assert names(tmp_path) == ["bad-step-00000003-g0001", "step-00000002-g0001"]
    (line,) = said
    assert str(tmp_path / "step-00000003-g0001") in line
    assert told in line
    assert "bad-step-00000003-g0001" in line


def test_a_ledger_that_does_not_hold_is_damage(tmp_path: Path) -> None:
    save(tmp_path, manifest(3, ledger=manifest(2).ledger))
    assert newest(tmp_path) is None
    assert names(tmp_path) == ["bad-step-00000003-g0001"]


def test_other_runs_count_only_with_resume(tmp_path: Path) -> None:
    save(tmp_path, manifest(9, 1, run="run-0", created=2.0))
    save(tmp_path, manifest(5, 2, run="run-00", created=1.0))
    assert newest(tmp_path) is None
    assert newest(tmp_path, resume=True) == "step-00000005-g0002"
    save(tmp_path, manifest(1, 3))
    assert newest(tmp_path, resume=True) == "step-00000001-g0003"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "another"}, "other parameters"),
        ({"optimizer": "Adam"}, "its optimizer is Adam, not SGD"),
        ({"data": Order(samples=10, batch=5).fingerprint, "batch": 5}, "batch size"),
        (
            {"data": replace(saved.ORDER, contents="others").fingerprint},
            "its data set is another one of the same length",
        ),
    ],
)
def test_a_foreign_one_is_passed_over_but_of_ones_own_run_is_an_error(tmp_path: Path, changes, told) -> None:
    save(tmp_path, manifest(2, 1, run="run-0"))
    save(tmp_path, manifest(9, 2, run="run-0", **changes))
    said: list[str] = []
    found = saved.newest(tmp_path, said.append, resume=True)
    assert found is not None
    assert found.step == 2
    assert told in said[0]
    assert len(names(tmp_path)) == 2
    save(tmp_path, manifest(3, 3, **changes))
    with pytest.raises(SnapshotError, match=f"step-00000003-g0003 is of this run, but.*{told}"):
        newest(tmp_path, resume=True)


def test_the_last_few_of_the_run_are_kept(tmp_path: Path) -> None:
    save(tmp_path, manifest(9, 1, run="run-0"))
    (tmp_path / "bad-step-00000001-g0002").mkdir()
    mine = archive(tmp_path, keep=2)
    assert mine.claim() == 2
    for steps in (1, 2, 3):
        publish(mine, tmp_path, manifest(steps, 2))
    assert names(tmp_path) == [
        "bad-step-00000001-g0002",
        "step-00000002-g0002",
        "step-00000003-g0002",
        "step-00000009-g0001",
    ]


def test_copied_snapshots_count_as_claims(tmp_path: Path) -> None:
    save(tmp_path, manifest(3, 7))
    assert [archive(tmp_path).claim() for _ in range(2)] == [8, 9]


def test_a_stale_writer_fails_and_leaves_nothing(tmp_path: Path) -> None:
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


def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path) -> None:
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


def test_a_disk_that_can_only_be_read_is_an_error_and_what_is_there_is_found(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="100k") as disk:
        archive(disk).claim()
        publish(archive(disk), disk, manifest(1))
        make_read_only(disk)
        assert newest(disk) == "step-00000001-g0001"
        with pytest.raises(SnapshotError, match=f"no snapshots can be written to {disk}: .*Read-only file system"):
            archive(disk).claim()


def test_no_space_leaves_the_last_good_one(tmp_path: Path) -> None:
    archive(tmp_path).claim()
    publish(archive(tmp_path), tmp_path, manifest(1))
    assert finish(fork(publish_without_space, tmp_path)) == 0
    assert names(tmp_path) == ["step-00000001-g0001"]
    assert newest(tmp_path) == "step-00000001-g0001"


def publish_without_space(folder: Path) -> None:
    """The system refuses to write more than 5,000 bytes to a file, as a full disk would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    with pytest.raises(OSError) as caught:  # noqa: PT011  the number is what tells
        publish(archive(folder), folder, manifest(2))
    assert caught.value.errno == errno.EFBIG
