"""Files of a script's folder that have the name of a module of Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kittrain.agent.processes.shadowed import tell_shadowed


def missing(module: ModuleType) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        _ = module.no_such_name
    tell_shadowed(caught.value)
    return caught.value


@pytest.mark.parametrize(("name", "times"), [("profile", 1), ("queue", 1), ("networks", 0)])
def test_a_file_that_hides_a_module_of_python(name: str, times: int, tmp_path: Path) -> None:
    module = ModuleType(name)
    module.__file__ = str(tmp_path / f"{name}.py")
    text = str(missing(module))
    assert text.startswith(f"module '{name}' has no attribute 'no_such_name'")
    assert text.count(f"(consider renaming '{tmp_path}/{name}.py' since it has the same name as the standard") == times


def test_modules_of_python_itself_are_told_as_they_are() -> None:
    setuptools = ModuleType("distutils")
    setuptools.__file__ = "/venv/lib/python3.11/site-packages/setuptools/_distutils/__init__.py"
    for module in (json, sys, pytest, setuptools):
        assert "renaming" not in str(missing(module))
    error = AttributeError("another")
    tell_shadowed(error)
    tell_shadowed(ValueError("none"))
    assert str(error) == "another"
