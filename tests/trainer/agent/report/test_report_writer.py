"""Reports are written in the background, whatever the sink does."""

from __future__ import annotations

import threading
import time

import pytest

from kitjob.report import Preparation, Report
from kittrain.agent.report import report_writer
from kittrain.agent.report.history import History
from kittrain.agent.report.report_sinks import Sink
from kittrain.agent.report.report_writer import ReportWriter
from kittrain.job.env import NodeEnv


class FaultySink:
    """A sink that fails or hangs on demand."""

    interval = 0.01

    def __init__(self, *, error: str = "", hangs: bool = False) -> None:
        self.put_up = 0
        self.released = threading.Event()
        self._error = error
        self._hangs = hangs

    def put(self, report: Report, tail: str = "") -> None:  # noqa: ARG002  named as the sinks' own
        self.put_up += 1
        if self._hangs:
            self.released.wait()
        if self._error:
            raise OSError(self._error)

    def last(self) -> Report | None:
        return None

    def tail(self) -> str:
        return ""

    def prepare(self, node: int, note: Preparation | None) -> None:
        raise NotImplementedError


def writer_of(sink: FaultySink, lines: list[str], report: Report | None = Report(round=1)) -> ReportWriter:  # noqa: B008
    return ReportWriter(sink, History(NodeEnv(), lines.append), lambda: report, lines.append)


def test_an_error_of_the_sink_is_logged_once() -> None:
    sink, lines = FaultySink(error="the volume is full"), list[str]()
    writer = writer_of(sink, lines)
    writer.begin()
    while sink.put_up < 3:
        time.sleep(0.01)
    writer.stop()
    assert lines == ["warning: cannot write the status report: the volume is full"]


def test_a_sink_that_hangs_blocks_neither_a_new_round_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writer, "FINAL_REPORT_TIMEOUT", 0.01)
    sink = FaultySink(hangs=True)
    writer = writer_of(sink, [])
    for _ in range(2):
        writer.begin()
    while not sink.put_up:
        time.sleep(0.01)
    writer.wake()
    writer.stop()
    assert sink.put_up == 1
    sink.released.set()


def test_nothing_is_written_before_this_node_leads_and_while_another_one_does() -> None:
    sink = FaultySink()
    writer_of(sink, []).stop()
    other = writer_of(sink, [], report=None)
    other.begin()
    other.stop()
    assert sink.put_up == 0


def test_what_is_to_be_known_first_is_read_once_and_before_the_first_report() -> None:
    sink, read = FaultySink(), list[int]()

    def before(known: Sink) -> None:
        assert known is sink
        read.append(sink.put_up)

    writer = writer_of(sink, [])
    writer.begin(before)
    writer.begin(before)
    while not sink.put_up:
        time.sleep(0.01)
    writer.stop()
    assert read == [0]
