"""Texts that argparse takes for True, although they say something else."""

from __future__ import annotations

import argparse
import atexit
import types
from typing import Any

import pytest

from kittrain.agent.hooks.notes.boolean_arguments import BooleanArguments
from kittrain.outcome.rank_output import TAKEN_FOR_TRUE, trains_nothing


def parsed(kind: Any, *words: str) -> tuple[Any, BooleanArguments]:
    """The value of ``--flag``, of type ``kind``."""
    own: Any = type("ArgumentParser", (argparse.ArgumentParser,), {"_get_value": argparse.ArgumentParser._get_value})
    arguments = BooleanArguments()
    arguments.watch(types.SimpleNamespace(ArgumentParser=own))  # type: ignore[arg-type]
    parser = own()
    parser.add_argument("-f", "--flag", type=kind, default="")
    parser.add_argument("name", nargs="?", type=str)
    return parser.parse_args(words).flag, arguments


@pytest.mark.parametrize("text", ["False", "false", "0", "no", "off", "None"])
def test_a_text_that_says_no_and_is_true_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    value, arguments = parsed(bool, "--flag", text)
    assert value is True, "argparse's own doing, which is not changed"
    atexit.unregister(arguments.tell)
    arguments.tell()
    told = f"{TAKEN_FOR_TRUE}-f {text}"
    assert capsys.readouterr().err == f"note: {told}\n"
    assert trains_nothing([f"note: {told}"]) == told


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, ["--flag", "True"]),
        (bool, ["--flag", "1"]),
        (bool, ["--flag", ""]),
        (bool, []),
        (bool, ["False"]),
        (str, ["--flag", "False"]),
        (lambda text: text == "True", ["--flag", "False"]),
    ],
)
def test_other_arguments_are_told_nothing(kind: Any, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parsed(kind, *words)[1].tell()
    assert capsys.readouterr().err == ""
