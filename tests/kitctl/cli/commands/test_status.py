"""`kitctl status` with output of ranks in it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from kitctl.api.job import Job
from kitctl.cli.main import main
from kitctl.output.view import live
from kitctl.output.view.text import Look
from kitctl.targets.local.local_target import LocalTarget
from kitctl.targets.local.locks import acquire_lock
from kitctl.targets.local.records import Result
from kitjob.report import Progress, Report, Termination
from tests.kitctl.localjobs import ended_job, running_job

EVIL = "\x1b[2J\x1b]0;owned\x07[red]\u202e\nother   Succeeded"
FAILURE = Termination(outcome="fatal", reason=EVIL, rank=0, error=EVIL, traceback=f"Traceback:\n\tfile\n{EVIL}")
REPORT = Report(progress=Progress(step=3, metrics={EVIL: 1.0}))


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    ended_job("job", "Failed", failure=FAILURE, report=REPORT)


@pytest.mark.parametrize(
    "words",
    [
        ("status", "job"),
        ("status", "job", "-o", "wide"),
        ("status", "job", "--watch"),
        ("list", "-o", "wide"),
        ("wait", "job"),
        ("status", "job", "--exit-code"),
        ("doctor", "job"),
    ],
    ids=" ".join,
)
def test_output_of_ranks_is_shown_but_not_interpreted(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    main(words)
    shown = "".join(capsys.readouterr())
    assert r"\x1b[2J\x1b]0;owned\x07[red]\u202e" in shown
    assert not {"\x1b", "\x07", "\u202e"} & {*shown}
    rows = [line for line in shown.splitlines() if line.startswith("other")]
    assert not rows, "a line break has created a row"


def test_json_has_the_text_itself(capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", "job", "-o", "json"])
    shown = capsys.readouterr().out
    assert json.loads(shown)["failure"]["reason"] == EVIL
    assert not {"\x1b", "\x07", "\u202e"} & {*shown}


@pytest.mark.parametrize("words", [("status", "job"), ("list",), ("why", "job"), ("doctor", "job"), ("version",)])
def test_yaml_says_what_json_does(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main([*words, "-o", "json"])
    as_json = json.loads(capsys.readouterr().out)
    main([*words, "-o", "yaml"])
    shown = capsys.readouterr().out
    assert yaml.safe_load(shown) == as_json
    assert not {"\x1b", "\x07", "\u202e"} & {*shown}


def test_a_live_page_escapes_what_ranks_print() -> None:
    state = Job(target=LocalTarget.of_user(), namespace="default", name="job").state()
    shown = "\n".join(live.page(state, 200.0, Look(width=200)))
    assert r"\x1b[2J\x1b]0;owned\x07[red]\u202e" in shown
    assert not {"\x1b[2J", "\x1b]0", "\x07"} & {one for one in ("\x1b[2J", "\x1b]0", "\x07") if one in shown}


def test_watching_in_a_pipe_shows_each_phase_once_and_ends_with_the_job() -> None:
    job = running_job("watched")
    command = [sys.executable, "-m", "kitctl", "status", "-w", "watched", "--exit-code"]
    with (
        acquire_lock(job.lock),  # the test acts as the supervisor
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        seen = [next(line for line in process.stdout if line.startswith("Phase"))]
        job.write(Result(phase="Cancelled", time=200.0))
        seen += [line for line in process.stdout if line.startswith("Phase")]
    assert [line.split()[1] for line in seen] == ["Pending", "Cancelled"]
    assert process.returncode == 103
