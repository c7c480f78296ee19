"""Who tells that a round has ended if its leader does not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kitjob.report import Report
from kittrain.agent.report import backup_reporter
from kittrain.agent.report.backup_reporter import BackupReporter
from kittrain.agent.report.report_sinks import FileSink

LOST = "node 0 is lost: its machine does not answer"


def until_told() -> None:
    """Wait for the thread of a backup."""
    for thread in threading.enumerate():
        if thread.name == "backup-reporter":
            thread.join()


def told(folder: Path, former: Report | None) -> Report | None:
    """What the sink has once a backup has looked at a report."""
    sink = FileSink(folder / "report.json")
    if former:
        sink.put(former)
    BackupReporter("run-1", sink, lambda _: "").begin(LOST)
    until_told()
    return sink.last()


@pytest.mark.parametrize(
    "former",
    [None, Report(run="run-0"), Report(run="run-1", forming=True), Report(run="run-1", ended=True)],
    ids=["none", "another run", "the leader has told it", "training has ended"],
)
def test_a_report_stays_if_there_is_nothing_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: Report | None
) -> None:
    monkeypatch.setattr(backup_reporter, "SOON", 0.0)
    assert told(tmp_path, former) == former


def test_what_the_leader_has_told_stays_but_for_the_end_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_reporter, "SOON", 0.0)
    found = told(tmp_path, Report(run="run-1", round=3, world_size=4))
    assert found
    assert (found.forming, found.ended_by, found.round, found.world_size) == (True, LOST, 3, 4)


def test_nothing_is_told_once_the_next_round_has_formed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(backup_reporter, "SOON", 0.0)
    sink = FileSink(tmp_path / "report.json")
    sink.put(Report(run="run-1"))
    found = BackupReporter("run-1", sink, lambda former: former * asked.wait())
    found.begin(LOST)
    found.end()
    asked.set()
    until_told()
    assert sink.last() == Report(run="run-1")


def test_what_a_late_leader_has_told_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_reporter, "SOON", 0.0)
    sink, end = FileSink(tmp_path / "report.json"), Report(run="run-1", restarts=2, forming=True)
    sink.put(Report(run="run-1", restarts=3))

    def leader_ends(_: str) -> str:
        sink.put(end)
        return ""

    BackupReporter("run-1", sink, leader_ends).begin(LOST)
    until_told()
    assert sink.last() == end
