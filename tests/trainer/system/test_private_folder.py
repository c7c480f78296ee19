"""A folder in a shared parent is used only if no other user can have written to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kittrain.system.private_folder import private_folder


def test_it_is_created_for_this_user_only_and_reused(tmp_path: Path) -> None:
    for _ in range(2):
        assert private_folder(tmp_path / "own").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_one_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    private_folder(tmp_path / "own").chmod(mode)
    with pytest.raises(PermissionError, match="other users may have written to it"):
        private_folder(tmp_path / "own")


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "own").symlink_to("target")
    with pytest.raises(PermissionError, match="other users may have written to it"):
        private_folder(tmp_path / "own")


def test_another_users_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_folder(tmp_path / "own")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="other users may have written to it"):
        private_folder(tmp_path / "own")
