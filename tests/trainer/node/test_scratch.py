"""The agent's own folder."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from kittrain.node.scratch import UNUSED, scratch_folder
from kittrain.system.claims import claim, release


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_it_is_the_agents_alone_and_ends_with_it(tmp_path: Path) -> None:
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "round-1").mkdir()
    assert not list(tmp_path.iterdir())


def test_what_killed_agents_left_goes_with_the_next_one(tmp_path: Path) -> None:
    left = tmp_path / "kit-agent-left"
    release(claim(left))
    (left / "round-1").mkdir()
    os.mkfifo(left / "round-1" / "0.pipe")
    with scratch_folder():
        assert left.exists(), "it may just have been made"
    then = time.time() - UNUSED - 1
    for path in [*left.iterdir(), left]:
        os.utime(path, (then, then))
    with scratch_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder]
