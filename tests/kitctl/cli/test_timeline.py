"""``kitctl events``, ``goodput`` and ``plot``: what they print of a history, and why there may be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.cli.main import main
from kitctl.targets.local import launch
from kitctl.targets.local.folder import state_home
from kitjob import timeline
from kitjob.record import replace
from kitjob.report import Report
from kitjob.timeline import Event, Row
from tests.kitctl.localjobs import PAST, ended_job, running_job, write_history


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")


def test_events_are_one_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    write_history(ended_job("job", lines=("started",)))
    assert main(["events", "job"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["AFTER", "NODE", "EVENT", "DETAILS"]
    assert [line.split("  ")[0] for line in lines[1:]] == ["0.0s", "2.0s", "5.0s", "9.0s", "30.0s", "59.0s", "1m00s"]
    assert lines[3].endswith("group 1: 1 node, 1 rank")
    assert lines[5].endswith("step 200 0.50 s (stall 0.01)")
    assert main(["events", "job", "-o", "wide"]) == 0
    assert "1970-01-01 00:01:42.000" in capsys.readouterr().out


def test_what_an_event_says_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_history(ended_job("job"), [*PAST, Event(time=159.5, what="fault", cause="\x1b[2Jgone\nnow" + "x" * 500)])
    assert main(["events", "job"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "gone" in out
    assert all(len(line) < 160 for line in out.splitlines())


def test_goodput_is_a_table_that_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    write_history(ended_job("job", lines=("started",)))
    assert main(["goodput", "job"]) == 0
    out = capsys.readouterr().out
    assert "Goodput   73.5% of all node-seconds were training" in out
    rows = [line.split("  ")[0] for line in out.split("\n\n")[1].splitlines()[1:]]
    assert rows[0] == "placement"
    assert rows[-1] == "unknown"
    assert main(["goodput", "-A"]) == 0
    assert "job   1       1m00s     73.5%" in capsys.readouterr().out


def test_goodput_says_that_a_clock_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [replace(line, time=line.time - 86400) for line in PAST if not isinstance(line, timeline.Dropped)]
    write_history(ended_job("job"), lines)
    assert main(["goodput", "job"]) == 1
    out, error = capsys.readouterr()
    assert "Goodput " in out
    assert "these numbers are wrong: a clock was set by about 23h59m during the run" in error
    assert main(["goodput", "-A"]) == 0
    assert "not known: a clock was set" in capsys.readouterr().out


def test_goodput_needs_one_job_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["job", "-A"]):
        assert main(["goodput", *words]) == 2
        assert "name one job, or give -A" in capsys.readouterr().err


def test_a_job_without_a_history_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    running_job("young", report=Report(formed=1.0, world_size=1))
    ended_job("old")
    for name, why in {"young": "", "old": "none of its nodes got that far, or a trainer without it ran"}.items():
        for command in ("events", "goodput", "plot"):
            assert main([command, name]) != 0
            message = capsys.readouterr().err
            assert f"job '{name}' has no history" in message
            assert why in message
    assert main(["goodput", "-A"]) == 0
    assert "default/old: job 'old' has no history" in capsys.readouterr().err


def test_a_history_goes_with_the_snapshots(capsys: pytest.CaptureFixture[str]) -> None:
    job = ended_job("job")
    write_history(job)
    folder = launch.snapshot_dir(job.job.spec, state_home())
    assert folder
    assert main(["delete", "job", "-y"]) == 0
    assert (folder / timeline.FOLDER).is_dir()
    ended_job("job")
    assert main(["events", "job"]) == 0
    assert main(["delete", "job", "--snapshots", "-y"]) == 0
    assert not folder.exists()
    capsys.readouterr()


def test_a_plot_is_text_without_codes_where_it_is_piped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    write_history(ended_job("job"))
    assert main(["plot", "job"]) == 0
    out = capsys.readouterr().out
    assert "loss (log scale): 0.0408" in out
    assert "' 1 snapshot" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 60


def test_a_plot_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_history(ended_job("job"))
    assert main(["plot", "job", "--metric", "loss", "-o", str(tmp_path / "job.svg")]) == 0
    assert (tmp_path / "job.svg").read_text("utf-8").startswith("<svg ")
    assert main(["plot", "job", "-o", "job.gif"]) == 2
    assert "written as .svg or .png" in capsys.readouterr().err


def test_a_plot_of_what_is_not_known_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    job = ended_job("script")
    write_history(job, [line for line in PAST if not isinstance(line, Row)])
    assert main(["plot", "script", "--metric", "loss"]) == 1
    assert "no loss is known of script" in capsys.readouterr().err
