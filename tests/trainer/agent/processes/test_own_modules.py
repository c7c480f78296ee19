"""Modules of the script's folder that Python does not find."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from kittrain.agent.processes.own_modules import tell_own
from kittrain.outcome.causes import cause_of
from kittrain.system.texts import of_error


def missing(name: str) -> str:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    tell_own(caught.value)
    return of_error(caught.value)


@pytest.mark.parametrize(
    ("file", "name", "folder"),
    [
        ("guided/__init__.py", "guided", "."),
        ("guided/nn.py", "guided.nn", "."),
        ("guided.py", "guided", "."),
        ("src/guided/__init__.py", "guided.nn", "src"),
    ],
)
def test_a_module_that_is_not_searched_has_the_variable_that_finds_it(
    file: str, name: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    error = missing(name)
    assert error == f"ModuleNotFoundError: No module named 'guided' (it is in {folder}, which is not in sys.path)"
    found = cause_of(error)
    assert (found.code, found.permanent) == ("module-not-on-path", True)
    assert found.fix.startswith(f"--env PYTHONPATH={folder}: ")


def test_a_folder_of_data_and_a_module_that_is_nowhere_are_no_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data4").mkdir()
    (tmp_path / "data4" / "train.csv").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("data4", "nowhere4"):
        assert missing(name) == f"ModuleNotFoundError: No module named {name!r}"
    own = ModuleNotFoundError("install it")
    tell_own(own)
    tell_own(ImportError("none"))
    assert str(own) == "install it"
