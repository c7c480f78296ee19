"""What is left out of the trainer's source, and what is not; and where a checkout's archive is written."""

from __future__ import annotations

import ast
import lzma
from pathlib import Path

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


def test_nothing_but_the_archive_is_ever_among_the_charts_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel takes all of the folder, also while another process packs, or after one that was killed then."""
    (tmp_path / "trainer" / "kitjob").mkdir(parents=True)
    (tmp_path / "trainer" / "kitjob" / "__init__.py").write_text("x = 1\n")
    files = tmp_path / "charts" / trainer_package.FILES
    files.mkdir(parents=True)

    def killed(_: Path, target: Path) -> None:
        assert target.parent == files
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            trainer_package.refresh(tmp_path)
    assert not list(files.iterdir())
    packed = trainer_package.refresh(tmp_path)
    assert [one.read_bytes() for one in files.iterdir()] == [packed]
    assert b"x = 1" in lzma.decompress(packed)
