"""Folders that a process locks for its lifetime."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kittrain.system import folder_locks

HOLDER = """
import os, sys
from pathlib import Path
from kittrain.system.folder_locks import lock
lock(Path(sys.argv[1]))
if os.fork() == 0:  # a forked rank neither holds the lock nor ends it
    import time
    time.sleep(600)
print("here", flush=True)
input()
"""
REMOVER = """
import sys
from pathlib import Path
from kittrain.system.folder_locks import remove_unused
input()
remove_unused(Path(sys.argv[1]), "kit-", unused=0.0)
"""


@contextmanager
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has locked a folder."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        os.killpg(process.pid, 9)


def remaining(root: Path, *, unused: float = 0.0) -> list[str]:
    """Remove unused folders; returns the names of the others."""
    folder_locks.remove_unused(root, "kit-", unused=unused)
    return sorted(path.name for path in root.iterdir())


def age(folder: Path) -> None:
    then = time.time() - 100
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (then, then))


def test_a_folder_is_removed_only_after_its_owner_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kit-1"
    with owner(folder) as process:
        (folder / "pipe").touch()
        age(folder)
        assert remaining(tmp_path) == ["kit-1"]
        process.kill()
        process.wait()
        assert remaining(tmp_path) == [], "though a process that it forked is alive"


def test_a_recently_changed_folder_stays(tmp_path: Path) -> None:
    with owner(tmp_path / "kit-1") as process:
        process.kill()
    assert remaining(tmp_path, unused=60.0) == ["kit-1"]
    age(tmp_path / "kit-1")
    (tmp_path / "kit-1" / "copy").touch()
    assert remaining(tmp_path, unused=60.0) == ["kit-1"]
    age(tmp_path / "kit-1")
    assert remaining(tmp_path, unused=60.0) == []


def test_a_folder_that_was_never_locked_stays(tmp_path: Path) -> None:
    """A folder of another version, another user's folder, a file, or a link to other data."""
    data = tmp_path / "data"
    data.mkdir()
    (data / folder_locks.LOCK_FILE).touch()
    (tmp_path / "kit-1").mkdir()
    (tmp_path / "kit-1" / "pipe").touch()
    (tmp_path / "kit-2").symlink_to(data)
    (tmp_path / "kit-3").touch()
    age(data)
    age(tmp_path / "kit-1")
    assert remaining(tmp_path) == ["data", "kit-1", "kit-2", "kit-3"]
    assert (data / folder_locks.LOCK_FILE).exists()


def test_another_users_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owner(tmp_path / "kit-1") as process:
        process.kill()
    age(tmp_path / "kit-1")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert remaining(tmp_path) == ["kit-1"]


def test_two_processes_cannot_lock_one_folder(tmp_path: Path) -> None:
    with owner(tmp_path / "kit-1") as process:
        with pytest.raises(OSError, match="unavailable"):
            folder_locks.lock(tmp_path / "kit-1")
        process.kill()
    folder_locks.unlock(folder_locks.lock(tmp_path / "kit-1"))


def test_concurrent_removals_do_not_disturb_locks(tmp_path: Path) -> None:
    for number in range(20):
        folder_locks.unlock(folder_locks.lock(tmp_path / f"kit-left-{number}"))
    removers = [
        subprocess.Popen([sys.executable, "-c", REMOVER, str(tmp_path)], stdin=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(process.communicate, "go\n", 60) for process in removers]
        held = {number: folder_locks.lock(tmp_path / f"mine-{number}") for number in range(100)}
        assert [end.result()[1] for end in ends] == [""] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"mine-{number}" for number in held)
    for descriptor in held.values():
        folder_locks.unlock(descriptor)
