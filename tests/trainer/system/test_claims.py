"""Folders that belong to a process as long as it lives."""

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

from kittrain.system import claims

OWNER = """
import os, sys
from pathlib import Path
from kittrain.system.claims import claim
claim(Path(sys.argv[1]))
if os.fork() == 0:  # a forked rank: it neither holds the claim nor ends it
    import time
    time.sleep(600)
print("here", flush=True)
input()
"""
CLEARER = """
import sys
from pathlib import Path
from kittrain.system.claims import clear
input()
clear(Path(sys.argv[1]), "kit-", unused=0.0)
"""


@contextmanager
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed a folder."""
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        os.killpg(process.pid, 9)


def clear(root: Path, *, unused: float = 0.0) -> list[str]:
    """What is left then."""
    claims.clear(root, "kit-", unused=unused)
    return sorted(path.name for path in root.iterdir())


def age(folder: Path) -> None:
    then = time.time() - 100
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (then, then))


def test_a_folder_stays_while_its_owner_lives_and_goes_after_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kit-1"
    with owner(folder) as process:
        (folder / "pipe").touch()
        age(folder)
        assert clear(tmp_path) == ["kit-1"]
        process.kill()
        process.wait()
        assert clear(tmp_path) == [], "though what it has forked lives"


def test_what_was_just_made_or_used_stays_for_a_while(tmp_path: Path) -> None:
    with owner(tmp_path / "kit-1") as process:
        process.kill()
    assert clear(tmp_path, unused=60.0) == ["kit-1"]
    age(tmp_path / "kit-1")
    (tmp_path / "kit-1" / "copy").touch()
    assert clear(tmp_path, unused=60.0) == ["kit-1"]
    age(tmp_path / "kit-1")
    assert clear(tmp_path, unused=60.0) == []


def test_what_nobody_has_claimed_stays(tmp_path: Path) -> None:
    """An agent of another version's, or a user's own; a file, or a link to where somebody's data lie."""
    data = tmp_path / "data"
    data.mkdir()
    (data / claims.OWNER).touch()
    (tmp_path / "kit-1").mkdir()
    (tmp_path / "kit-1" / "pipe").touch()
    (tmp_path / "kit-2").symlink_to(data)
    (tmp_path / "kit-3").touch()
    age(data)
    age(tmp_path / "kit-1")
    assert clear(tmp_path) == ["data", "kit-1", "kit-2", "kit-3"]
    assert (data / claims.OWNER).exists()


def test_another_users_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owner(tmp_path / "kit-1") as process:
        process.kill()
    age(tmp_path / "kit-1")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert clear(tmp_path) == ["kit-1"]


def test_two_cannot_have_one_folder(tmp_path: Path) -> None:
    with owner(tmp_path / "kit-1") as process:
        with pytest.raises(OSError, match="unavailable"):
            claims.claim(tmp_path / "kit-1")
        process.kill()
    claims.release(claims.claim(tmp_path / "kit-1"))


def test_many_that_clear_at_once_while_others_claim_disturb_nobody(tmp_path: Path) -> None:
    for number in range(20):
        claims.release(claims.claim(tmp_path / f"kit-left-{number}"))
    clearers = [
        subprocess.Popen([sys.executable, "-c", CLEARER, str(tmp_path)], stdin=-1, stderr=-1, text=True)
        for _ in range(3)
    ]
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(process.communicate, "go\n", 60) for process in clearers]
        held = {number: claims.claim(tmp_path / f"mine-{number}") for number in range(100)}
        assert [end.result()[1] for end in ends] == [""] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"mine-{number}" for number in held)
    for descriptor in held.values():
        claims.release(descriptor)
