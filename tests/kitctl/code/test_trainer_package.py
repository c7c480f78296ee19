"""What is left out of the trainer's source, and what is not."""

from __future__ import annotations

import ast

import pytest

from kitctl.code import trainer_package

# A source, and what travels of it.
SOURCES = [
    ('"""A module."""\nx = 1  # why\n', '""\nx = 1\n'),
    ('def f(a: int, *, b: str = "") -> int:\n    """Two\n    lines."""\n    return a\n', None),
    (
        "class P(Protocol):\n    @property\n    def name(self) -> str: ...  # why\n    def other(self) -> int: ...\n",
        None,
    ),
    ('def f() -> str: "a docstring in the same line"\n', None),
    ("class C:\n    x: int = 1\n    ...\n", None),
    ("text = 'a # that is no comment'\nodd = f'{text!r:>10}'\n", None),
]


@pytest.mark.parametrize(("source", "expected"), SOURCES)
def test_a_shortened_source_means_the_same(source: str, expected: str | None) -> None:
    shorter = trainer_package._shortened(source.encode()).decode()
    if expected is not None:
        assert shorter == expected
    assert len(shorter) <= len(source)
    assert defined(shorter) == defined(source)
    assert shorter.count("\n") == source.count("\n")


def defined(source: str) -> list[tuple[str, str, int]]:
    """The functions, classes and values of a source, each with its line."""
    return [
        (type(one).__name__, getattr(one, "name", ""), one.lineno)
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Return)
    ]
