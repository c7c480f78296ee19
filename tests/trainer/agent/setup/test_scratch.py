"""The agent's temporary folder."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from kittrain.agent.setup.scratch import UNUSED, scratch_folder
from kittrain.system.folder_locks import lock, unlock


@pytest.fixture(autouse=True)
def _private_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_it_is_private_and_removed_with_the_agent(tmp_path: Path) -> None:
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "round-1").mkdir()
    assert not list(tmp_path.iterdir())


def test_folders_of_killed_agents_are_removed_by_the_next_one(tmp_path: Path) -> None:
    left = tmp_path / "kit-agent-left"
    unlock(lock(left))
    (left / "round-1").mkdir()
    os.mkfifo(left / "round-1" / "0.pipe")
    with scratch_folder():
        assert left.exists(), "it may have just been created"
    then = time.time() - UNUSED - 1
    for path in [*left.iterdir(), left]:
        os.utime(path, (then, then))
    with scratch_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder]
