"""Which arguments of ``kitctl doctor`` are its own, and which belong to a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.cli.commands.doctor import command


def parsed(*args: str) -> tuple[object, tuple[str, ...]]:
    params = command.make_context("doctor", [*args]).params
    return params["output"], params["words"]


@pytest.mark.parametrize(
    "args",
    [
        ("digits", "-o", "json"),
        ("digits", "-ojson"),
        ("digits", "--output=json"),
        ("-o", "json", "digits"),
        ("-n", "team", "digits", "-o", "json", "--target", "local"),
    ],
    ids=" ".join,
)
def test_options_after_a_jobs_name_are_kitctls_own(args: tuple[str, ...]) -> None:
    assert parsed(*args) == ("json", ("digits",))


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "-o", "json"),
        ("./train", "-o", "json"),
        ("existing", "-o", "json"),
        ("digits", "-o", "json", "more"),
        ("digits", "--lr", "1"),
        ("-m", "package", "-o", "json"),
    ],
    ids=" ".join,
)
def test_options_after_a_command_belong_to_the_command(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "existing").touch()
    monkeypatch.chdir(tmp_path)
    assert parsed(*words) == (None, words)


def test_two_dashes_start_a_command() -> None:
    assert parsed("--", "digits", "-o", "json") == (None, ("digits", "-o", "json"))
