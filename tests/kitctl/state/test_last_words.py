"""What a process says last that never became an agent."""

from __future__ import annotations

import pytest

from kitctl.state.last_words import LINES, WIDTH, ended_with, last_words

NO_ENCODINGS = """\
Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding
Python runtime state: core initialized
ModuleNotFoundError: No module named 'encodings'

Current thread 0x00007f5c (most recent call first):
  <no Python frame>
"""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", ""),
        ("\n \n", ""),
        ("exec /usr/bin/python3: exec format error\n", "exec /usr/bin/python3: exec format error"),
        (
            "Traceback (most recent call last):\n  import ssl\nImportError: undefined symbol: x\n\n",
            "ImportError: undefined symbol: x",
        ),
        ("ImportError: x\nsome library: cleaning up\n", "ImportError: x"),
        (NO_ENCODINGS, "ModuleNotFoundError: No module named 'encodings'"),
        ("json.decoder.JSONDecodeError: Extra data\n", "json.decoder.JSONDecodeError: Extra data"),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("no errors: Error rate 3\n", "no errors: Error rate 3"),
    ],
)
def test_the_last_error_or_else_the_last_line(log: str, said: str) -> None:
    assert last_words(log.splitlines()) == said


def test_no_more_than_the_end_of_a_log_and_of_a_line() -> None:
    assert last_words(["ImportError: old", *["x"] * LINES]) == "x"
    assert len(last_words(["ImportError: " + "x" * 1000])) == WIDTH


def test_an_end_without_words() -> None:
    assert ended_with(1, "") == "its agent ended with exit code 1"
    assert ended_with(1, "x") == "its agent ended with exit code 1: x"
