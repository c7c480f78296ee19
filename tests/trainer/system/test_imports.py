"""Imports without the garbage collector, and actions after them."""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path

import pytest

from kittrain.system.imports import after_import, without_gc


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    yield
    gc.enable()


def fail() -> None:
    with without_gc():
        assert not gc.isenabled()
        raise ImportError


def test_the_collector_is_disabled_and_enabled_again() -> None:
    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()


def test_what_was_imported_is_not_collected_later() -> None:
    imported = []
    with without_gc():
        imported.append([fail])
    assert not [known for known in gc.get_objects() if known is imported[0]]  # lists no frozen objects


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    with without_gc():
        pass
    assert not gc.isenabled()


def test_an_action_follows_an_import_that_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_later.py").write_text("NUMBER = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders, seen = list(sys.meta_path), []
    after_import("imported_later", lambda module: seen.append(module.NUMBER))
    importlib.import_module("json.tool")
    assert (seen, len(sys.meta_path)) == ([], len(finders) + 1)
    importlib.import_module("imported_later")
    assert (seen, sys.meta_path) == ([3], finders)
    after_import("imported_later", lambda module: seen.append(module.NUMBER + 1))
    assert seen == [3, 4], "it is imported already"


def test_a_missing_module_raises_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    after_import("there_is_no_such_module", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
        importlib.import_module("there_is_no_such_module")
