"""Retired names stay out of the code: Python names, file stems, flags, and keys of golden JSON. Prose may use them.

``retired.txt`` has a line ``old -> new`` for each. The new name says what to use instead.
"""

from __future__ import annotations

import re
import subprocess
import tokenize
from pathlib import Path
from typing import Final

import click
import pytest

from kitctl.cli import COMMANDS, cli

ROOT = Path(__file__).parents[2]
RETIRED: Final = dict(
    line.split(" -> ", 1) for line in (Path(__file__).parent / "retired.txt").read_text(encoding="utf-8").splitlines()
)
WORD: Final = re.compile(r"\w+")


def tracked(*patterns: str) -> list[Path]:
    found = subprocess.run(["git", "ls-files", *patterns], check=True, cwd=ROOT, capture_output=True, text=True)
    return [ROOT / name for name in found.stdout.splitlines() if (ROOT / name).is_file()]


def retired_in(names: set[str]) -> dict[str, str]:
    return {name: RETIRED[name] for name in names & RETIRED.keys()}


@pytest.mark.parametrize("folder", ["kitctl", "trainer", "tests", "tools", "bench"])
def test_no_python_name_is_retired(folder: str) -> None:
    found = {}
    for path in tracked(f"{folder}/*.py"):
        if not retired_in({*WORD.findall(path.read_text(encoding="utf-8"))}):  # saves tokenizing most files
            continue
        with path.open("rb") as file:
            names = {token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME}
        if wrong := retired_in(names):
            found[str(path.relative_to(ROOT))] = wrong
    assert found == {}


def test_no_module_has_a_retired_name() -> None:
    assert retired_in({path.stem for path in tracked("*.py")}) == {}


def test_no_flag_is_retired() -> None:
    commands = [cli.get_command(click.Context(cli), command) for command in COMMANDS]
    flags = {flag.lstrip("-") for command in commands if command for param in command.params for flag in param.opts}
    assert retired_in(flags) == {}


def test_no_key_of_a_golden_is_retired() -> None:
    keys = {key for path in tracked("tests/golden/*") for key in re.findall(r'"(\w+)":', path.read_text("utf-8"))}
    assert retired_in(keys) == {}


def test_a_retired_name_is_noticed() -> None:
    assert retired_in({*RETIRED, "hub"}) == RETIRED
