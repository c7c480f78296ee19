"""Full and read-only disks, as they are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kitctl.targets.local.disk import LEAST, trouble
from tests.trainer.mounts import make_read_only, tmpfs


def test_a_disk_with_room_is_no_trouble_and_nor_is_a_folder_that_is_gone(tmp_path: Path) -> None:
    assert not trouble(tmp_path)
    assert not trouble(tmp_path / "absent")


def test_a_file_system_that_counts_nothing_is_not_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = os.statvfs("/proc")
    assert (counted.f_blocks, counted.f_bfree) == (0, 0), "such as this one"
    monkeypatch.setattr(os, "statvfs", lambda _: counted)
    assert not trouble(tmp_path)


@pytest.mark.needs_root
def test_a_full_disk_one_without_inodes_and_a_read_only_one(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", size="1m") as folder:
        (folder / "most").write_bytes(b"x" * ((1 << 20) - 2 * LEAST))
        assert not trouble(folder)
        (folder / "rest").write_bytes(b"x" * (2 * LEAST))
        assert trouble(folder) == f"no room is left on the disk of {folder}"
        (folder / "rest").unlink()
        make_read_only(folder)
        assert trouble(folder) == f"the disk of {folder} is read-only"
    with tmpfs(tmp_path / "few", size="1m,nr_inodes=3") as folder:
        (folder / "one").touch()
        assert not trouble(folder)
        (folder / "two").touch()
        assert trouble(folder) == f"no room is left on the disk of {folder}"
