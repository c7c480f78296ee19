"""Where a user's files are, also of one that has no home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.base.errors import UsageError
from kitctl.base.user_folders import home, user_folder
from kitctl.cli.main import main
from kitctl.render.template_cache import user_cache


def nobody(_: int) -> None:
    raise KeyError("a number that the list of users has not")


def test_a_variable_comes_before_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert user_folder("XDG_STATE_HOME", ".local/state") == Path("/home/me/.local/state")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert user_folder("XDG_STATE_HOME", ".local/state") == Path("/elsewhere")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert user_folder("XDG_STATE_HOME", ".local/state") == Path("/home/me/.local/state"), "not below each folder"


def test_a_user_without_a_home_folder_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(UsageError):
        home()
    assert user_cache() is None
    assert main(["list", "--target", "local"]) == 2
    assert capsys.readouterr().err.endswith(
        "this user has no home folder\nfix: set HOME to a folder that you can write\n"
    )
