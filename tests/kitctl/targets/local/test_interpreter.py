"""Which interpreter runs the nodes, and what it lacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kitctl.base.errors import TargetError, UnsupportedError, UsageError
from kitctl.targets.local import interpreter


def answering(folder: Path, answer: str) -> str:
    """An interpreter that prints this when it is probed."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_is_found_by_path_or_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter.find("", tmp_path) == sys.executable
    there = answering(tmp_path, "")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "python").symlink_to(there)
    assert interpreter.find("env/python", tmp_path) == f"{tmp_path}/env/python", "links are not resolved"
    assert interpreter.find(there, Path("/")) == there
    monkeypatch.setenv("PATH", str(tmp_path / "env"))
    assert interpreter.find("python", Path("/")) == f"{tmp_path}/env/python"
    for absent in ("nothing", "env", "./nothing"):
        with pytest.raises(UsageError, match="no interpreter"):
            interpreter.find(absent, tmp_path)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"python": [3, 10], "torch": "2.6.0"}', "is Python 3.10"),
        ('{"python": [3, 11], "torch": ""}', "has no torch"),
        ('{"python": [3, 11], "torch": "2.5.1+cu121"}', "has torch 2.5.1+cu121"),
        ("nonsense", "is no Python that works: "),
    ],
)
def test_what_an_interpreter_lacks_is_reported(tmp_path: Path, answer: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        interpreter.check(answering(tmp_path, answer))
    assert message in caught.value.message
    assert caught.value.fix


@pytest.mark.parametrize("torch", ["2.6.0", "2.10.0+cu130", "3.0.0a0+git123"])
def test_newer_versions_are_accepted(tmp_path: Path, torch: str) -> None:
    python = answering(tmp_path, f'{{"python": [3, 14], "torch": "{torch}"}}')
    assert interpreter.check(python) == f"{python} has torch {torch}"


def test_only_the_trainer_library_is_added_to_its_path(tmp_path: Path) -> None:
    folder = interpreter.link_library(tmp_path)
    assert interpreter.link_library(tmp_path) == folder
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {"kitjob", "kittrain"}
    assert (folder / "kittrain" / "agent" / "main.py").is_file()


def test_the_jobs_pythonpath_follows_the_kits() -> None:
    assert interpreter.with_library({"A": "b"}, "") == {"A": "b"}
    assert interpreter.with_library({}, "/x") == {"PYTHONPATH": "/x"}
    assert interpreter.with_library({"PYTHONPATH": "/y"}, "/x") == {"PYTHONPATH": f"/x{os.pathsep}/y"}


def test_an_interpreter_that_is_gone_is_named(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    with pytest.raises(
        TargetError, match=f"the job's interpreter is gone: {python}\nfix: create that environment again"
    ):
        interpreter.command(str(python), ["kittrain.helper.history"])
    found = interpreter.command(sys.executable, ["kittrain.helper.history", "folder"])
    assert found == [sys.executable, "-P", "-m", "kittrain.helper.history", "folder"]
