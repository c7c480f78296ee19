"""Folders in memory: a node's is empty when it starts, and what is on disk is never touched."""

from __future__ import annotations

from pathlib import Path

from kitctl.targets.local import memory_folders


def test_what_a_node_had_is_gone_when_it_starts_again(tmp_path: Path) -> None:
    link = tmp_path / "job" / "node-0"
    memory_folders.renew(link)
    first = link.resolve()
    (link / "shard").write_text("bytes")
    memory_folders.renew(link)
    assert not first.exists()
    assert not [*link.iterdir()]
    assert link.resolve().stat().st_mode & 0o077 == 0, "others may read it"
    memory_folders.remove_all(link.parent)
    assert not link.is_symlink()
    assert not link.resolve().exists()


def test_folders_on_disk_stay(tmp_path: Path) -> None:
    kept, elsewhere = tmp_path / "job" / "node-0", tmp_path / "elsewhere"
    for folder in (kept, elsewhere):
        folder.mkdir(parents=True)
        (folder / "shard").write_text("bytes")
    memory_folders.renew(kept)
    (former,) = kept.parent.glob("former-*")
    (kept.parent / "node-1").symlink_to(elsewhere)
    memory_folders.remove_all(kept.parent)
    assert [(folder / "shard").read_text() for folder in (former, elsewhere)] == ["bytes"] * 2


def test_a_job_that_is_deleted_leaves_nothing_in_memory(tmp_path: Path) -> None:
    link = tmp_path / "job" / "node-0"
    memory_folders.renew(link)
    where = link.resolve()
    memory_folders.remove_all(link.parent)
    memory_folders.remove(link)  # as its supervisor does a moment later
    assert not where.exists()
