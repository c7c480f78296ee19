"""A node's preparation is in the report for as long as it takes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kitjob.run import RunFacts
from kittrain.agent.setup.preparation import preparing
from kittrain.job.env import NodeEnv


def test_it_is_reported_until_it_ends_or_fails(tmp_path: Path) -> None:
    node = NodeEnv(run=RunFacts(report=f"file:{tmp_path}/report.json"), node_index=1, pod="job-1")
    notes = []

    def fail() -> None:
        with preparing("installing requirements", node, pytest.fail):
            notes.append(json.loads((tmp_path / "preparing-1.json").read_text()))
            raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        fail()
    assert [(note["pod"], note["what"]) for note in notes] == [("job-1", "installing requirements")]
    assert notes[0]["since"] <= time.time()
    assert not [*tmp_path.iterdir()]


def test_a_failed_report_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    with preparing(
        "installing requirements",
        NodeEnv(run=RunFacts(report=f"file:{tmp_path}/absent/report.json")),
        warnings.append,
    ):
        pass
    assert len(warnings) == 1
    assert "the status does not show what this node does" in warnings[0]


def test_a_node_without_a_report_reports_nothing() -> None:
    with preparing("installing requirements", NodeEnv(), pytest.fail):
        pass
