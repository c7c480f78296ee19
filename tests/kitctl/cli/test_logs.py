"""`kitctl logs` in a terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from kitctl.cli.main import main
from kitctl.targets.local.locks import acquire_lock
from kitctl.targets.local.records import Result
from tests.kitctl.localjobs import append_line, ended_job, running_job

LINES = (
    "[rank 0]: \x1b[31mred\x1b[2J and \x1b]0;owned\x07",
    "[rank 1]: 50 %\r100 %",
    "[rank 0]: last",
)


@pytest.fixture(autouse=True)
def _job() -> None:
    ended_job("job", lines=LINES)


def in_a_terminal(*words: str) -> str:
    """The output of a command that runs in a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kitctl", *words, "--target", "local"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 4096):
                seen += piece
        except OSError:  # EIO: the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    return seen.decode().replace("\r\n", "\n")


def test_in_a_terminal_lines_keep_colours_but_no_other_codes() -> None:
    assert in_a_terminal("logs", "job").splitlines(keepends=True) == [
        "[rank 0]: \x1b[31mred\\x1b[2J and \\x1b]0;owned\\x07\x1b[0m\n",
        "[rank 1]: 50 %\r",
        "100 %\n",
        "[rank 0]: last\n",
    ]


def test_in_a_pipe_terminal_codes_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "job", "--target", "local"]) == 0
    assert "\x1b]0;owned\x07" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "abc"),
        (("--tail", "1"), "c"),
        (("--tail", "2"), "bc"),
        (("--tail", "0"), ""),
        (("--tail", "9"), "abc"),
        (("--include", "a|b", "--tail", "1"), "b"),
    ],
)
@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_tail_counts_the_lines_that_match_the_filters(
    words: tuple[str, ...], expected: str, follow: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ended_job("abc", lines=("a", "b", "c"))
    assert main(["logs", "abc", *follow, *words, "--target", "local"]) == 0
    assert capsys.readouterr().out == "".join(f"{letter}\n" for letter in expected)


def test_follow_continues_after_the_tail_until_the_job_ends() -> None:
    job = running_job("growing", lines=("a", "b"))
    command = [sys.executable, "-m", "kitctl", "logs", "-f", "growing", "--tail", "1", "--target", "local"]
    with (
        acquire_lock(job.lock),  # the test acts as the supervisor
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "b\n"
        append_line(job, "c")
        assert process.stdout.readline() == "c\n"
        job.write(Result(phase="Succeeded", time=200.0))
        assert process.stdout.read() == ""
    assert process.returncode == 0
