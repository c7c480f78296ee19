"""`kitctl logs` in a terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import datetime

import pytest

from kitctl.cli.main import main
from kitctl.targets.local.locks import acquire_lock
from kitctl.targets.local.records import Result
from kitjob.report import NodeAssignment, PastFailure, Report, Termination
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
        "\x1b[36m[rank 0]: \x1b[0m\x1b[31mred\\x1b[2J and \\x1b]0;owned\\x07\x1b[0m\n",
        "\x1b[33m[rank 1]: \x1b[0m50 %\r",
        "100 %\x1b[0m\n",
        "\x1b[36m[rank 0]: \x1b[0mlast\x1b[0m\n",
    ]


def test_no_colours_where_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert in_a_terminal("logs", "job").endswith("\n[rank 0]: last\n")


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


THREE = Report(
    formed=102.0,
    world_size=3,
    nodes={"0": NodeAssignment(ranks=(0, 1)), "1": NodeAssignment(ranks=(2, 2))},
)


@pytest.mark.parametrize("follow", [(), ("-f",), ("--tail", "1"), ("-f", "--tail", "1")])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--rank", "9"), "job 'three' has no rank 9\nfix: its ranks are 0-2, 5\n"),
        (("--rank", "7", "--rank", "8", "--rank", "1"), "job 'three' has no rank 7-8\nfix: its ranks are 0-2, 5\n"),
        (("--node", "4"), "job 'three' has no node 4\nfix: its nodes are 0-1\n"),
    ],
)
def test_a_rank_or_node_that_there_is_not_is_an_error_that_names_those_there_are(
    words: tuple[str, ...], error: str, follow: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ended_job("three", lines=("[rank 0]: a", "[rank 5]: of a larger world"), report=THREE, nodes=3)
    assert main(["logs", "three", *follow, *words, "--target", "local"]) == 102
    assert capsys.readouterr().err == f"error: {error}"


@pytest.mark.parametrize("follow", [(), ("-f",)])
@pytest.mark.parametrize(("rank", "printed"), [("0", "[rank 0]: a\n"), ("5", "[rank 5]: old\n"), ("2", "")])
def test_a_rank_that_is_silent_or_was_one_of_a_larger_world_is_none(
    rank: str, printed: str, follow: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ended_job("three", lines=("[rank 0]: a", "[rank 5]: old"), report=THREE, nodes=3)
    assert main(["logs", "three", *follow, "--rank", rank, "--target", "local"]) == 0
    assert capsys.readouterr().out == printed


def test_a_job_without_ranks_so_far_may_get_any(capsys: pytest.CaptureFixture[str]) -> None:
    ended_job("early", lines=("[agent 0]: starts",))
    assert main(["logs", "early", "--rank", "9", "--target", "local"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "lines", "told"),
    [
        ((), (), "silent: nothing logged (succeeded)\n"),
        (("--rank", "0", "-o", "json"), ("[agent 0]: x",), "silent: no line is of these (succeeded)\n"),
        (("--tail", "0"), ("x",), ""),
    ],
)
def test_where_there_is_no_line_it_is_said_what_the_job_does(
    words: tuple[str, ...], lines: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended_job("silent", lines=lines)
    assert main(["logs", "silent", *words, "--target", "local"]) == 0
    assert tuple(capsys.readouterr()) == ("", told)


def test_in_a_terminal_equal_lines_are_folded_and_a_pipe_gets_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_job("warns", lines=("[rank 0]: warning",) * 50)
    monkeypatch.setenv("NO_COLOR", "1")
    assert in_a_terminal("logs", "warns") == "[rank 0]: warning\n[rank 0]: ... 49 more like this\n"
    assert in_a_terminal("logs", "warns", "-f") == "[rank 0]: warning\n[rank 0]: ... 49 more like this\n"
    assert in_a_terminal("logs", "warns", "--full") == "[rank 0]: warning\n" * 50
    assert main(["logs", "warns", "--target", "local"]) == 0
    assert capsys.readouterr().out == "[rank 0]: warning\n" * 50


def test_previous_lines_are_those_before_the_last_start(capsys: pytest.CaptureFixture[str]) -> None:
    middle = datetime.fromisoformat("2026-01-01T00:00:00.5Z").timestamp()  # lines are a second apart
    ended_job("again", lines=("[rank 0]: before", "[rank 0]: after"), report=Report(restarts=1, formed=middle))
    assert _printed("again", "--previous", capsys=capsys) == ["[rank 0]: before"]
    assert main(["logs", "job", "--previous", "--target", "local"]) == 102
    assert "the ranks of job 'job' were not started again" in capsys.readouterr().err
    assert main(["logs", "again", "--previous", "-f", "--target", "local"]) == 2


def _printed(*words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["logs", *words, "--target", "local"]) == 0
    return capsys.readouterr().out.splitlines()


def test_failed_ranks_are_those_of_all_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    lines = tuple(f"[rank {rank}]: {word}" for rank, word in enumerate(("zero", "one", "two", "three")))
    earlier = Report(failures=(PastFailure(time=1.0, node=0, rank=1, cause="exit code 3"),))
    failure = Termination(outcome="fatal", reason="rank 3 failed", rank=3, node=0)
    ended_job("broken", "Failed", failure=failure, report=earlier, lines=lines)
    assert main(["logs", "broken", "--failed", "--target", "local"]) == 0
    assert capsys.readouterr().out == "[rank 1]: one\n[rank 3]: three\n"
    assert main(["logs", "job", "--failed", "--target", "local"]) == 102
    assert "no rank of job 'job' has failed" in capsys.readouterr().err
