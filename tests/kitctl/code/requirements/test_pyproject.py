"""Dependencies of a pyproject.toml as requirements."""

from __future__ import annotations

import pytest

from kitctl.base.errors import SpecError
from kitctl.code.requirements.pyproject import dependencies

PROJECT = """
[project]
name = "My.Project"
dependencies = ["alpha>=1", "beta"]
[project.optional-dependencies]
train = ["gamma", "my-project[data]"]
data = ["delta"]
loop = ["my_project[loop]"]
local = ["thing @ file:///thing.whl"]
[dependency-groups]
dev = ["epsilon", {include-group = "lint"}]
lint = ["zeta", "beta"]
"""


@pytest.mark.parametrize(
    ("extras", "lines"),
    [
        ([], ["alpha>=1", "beta"]),
        (["train"], ["alpha>=1", "beta", "gamma", "delta"]),
        (["dev", "DATA"], ["alpha>=1", "beta", "epsilon", "zeta", "delta"]),
    ],
)
def test_extras_are_added(extras: list[str], lines: list[str]) -> None:
    assert dependencies(PROJECT, "pyproject.toml", extras) == lines


@pytest.mark.parametrize(
    ("text", "extras", "words"),
    [
        ("[project", [], "Expected"),
        ("[project]\nname='x'\n", [], "has no [project] dependencies"),
        ("[project]\ndynamic=['dependencies']\n", [], "are dynamic"),
        (PROJECT, ["absent"], "has no extra 'absent'; fix: name one of dev, lint, train, data, loop, local"),
        (PROJECT, ["loop"], "names itself again"),
        (PROJECT, ["local"], "is a path on this machine"),
    ],
)
def test_an_error_names_its_cause(text: str, extras: list[str], words: str) -> None:
    with pytest.raises(SpecError, match=r"requirements\.file: pyproject\.toml") as raised:
        dependencies(text, "pyproject.toml", extras)
    assert words in str(raised.value)
