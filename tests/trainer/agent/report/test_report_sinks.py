"""Where reports go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitjob.report import Report
from kittrain.agent.report.configmap import ConfigMapSink
from kittrain.agent.report.report_sinks import FileSink, Sink, sink_of


def test_the_file_is_replaced_atomically(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "report.json")
    sink.put(Report(round=1))
    with (tmp_path / "report.json").open() as reader:
        sink.put(Report(round=2))
        assert json.load(reader)["round"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("address", "sink"),
    [
        (None, None),
        ("", None),
        ("file:/tmp/report.json", FileSink(Path("/tmp/report.json"))),
        ("configmap:run-status", ConfigMapSink(name="run-status")),
    ],
)
def test_the_address_selects_the_sink(address: str | None, sink: Sink | None) -> None:
    assert sink_of(address, pytest.fail) == sink


@pytest.mark.parametrize("address", ["file:", "configmap:", "pigeon:home"])
def test_an_invalid_address_is_a_warning(address: str) -> None:
    warnings: list[str] = []
    assert sink_of(address, warnings.append) is None
    assert len(warnings) == 1
    assert address in warnings[0]
