"""Conventions that no linter checks: exceptions have a reason, modules are documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SOURCES = sorted(path for folder in ("kitctl", "trainer", "tools", "bench") for path in (ROOT / folder).rglob("*.py"))


def test_every_lint_exception_and_every_dependency_has_a_reason() -> None:
    rules = re.findall(r'^  "[A-Z]+[0-9]*",.*$', PYPROJECT, re.MULTILINE)
    dependencies = re.findall(r'^  "[a-z0-9-]+>=.*$', PYPROJECT, re.MULTILINE)
    assert len(rules) > 10
    assert len(dependencies) > 10
    assert [line for line in rules + dependencies if "# " not in line] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_a_docstring(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith(('"""', "#!"))


def test_every_make_target_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: ([a-z-]+)", makefile, re.MULTILINE))
    shown = subprocess.run(["make", "help"], check=True, cwd=ROOT, capture_output=True, text=True).stdout
    explained = set(re.findall(r"^  make (\S+)\s+\S", shown, re.MULTILINE))
    assert phony <= explained
