"""Scripts that cannot be parsed."""

from __future__ import annotations

import ast
import warnings

import pytest

from kitctl.code import syntax


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print(1)\n", ""),
        ("", ""),
        ("\ufeffprint(1)\n", ""),
        ("x = (1\n", "a.py, line 1: '(' was never closed: x = (1"),
        ("if x:\nprint(1)\n", "a.py, line 2: expected an indented block after 'if' statement on line 1: print(1)"),
        ("print 'python 2'\n", "a.py, line 1: Missing parentheses in call to 'print'. Did you mean print(...)?: print"),
        ("import os\n!pip install x\n", "a.py, line 2: a notebook's command is no Python (packages come by --requ"),
        ("if 1:\n    !pip install x\n", "a.py, line 2: a notebook's command is no Python"),
        ("s = ('%d'\n     % (a b))\n", "a.py, line 2: invalid syntax. Perhaps you forgot a comma?: % (a b))"),
        ("%matplotlib inline\n", "a.py, line 1: a notebook's command is no Python"),
        ("x = 1\n" + "(" * 5000, "a.py, line 2: too many nested parentheses"),
        ("x" * syntax.LIMIT + "= (", ""),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, told: str) -> None:
    found = syntax.mistake("a.py", text)
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_another_language_is_not_parsed() -> None:
    assert syntax.mistake("run.sh", "if [ x ]; then") == ""


def test_warnings_of_the_parser_are_not_printed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert syntax.mistake("a.py", 'print("\\d")\n') == ""


def test_a_script_that_two_checks_ask_about_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(ast, "parse", parsed.append)
    assert [syntax.mistake("train.py", "print(1) # once") for _ in range(2)] == ["", ""]
    assert parsed == ["print(1) # once"]
