"""What a node does before it joins is told for as long as it does so."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kittrain.env import NodeEnv
from kittrain.node.preparation import preparing


def test_it_is_told_until_it_is_over_however_it_ends(tmp_path: Path) -> None:
    node = NodeEnv(node_index=1, pod="job-1", report=f"file:{tmp_path}/report.json")
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


def test_that_it_cannot_be_told_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    with preparing("installing requirements", NodeEnv(report=f"file:{tmp_path}/absent/report.json"), warnings.append):
        pass
    assert len(warnings) == 1
    assert "the status does not show what this node does" in warnings[0]


def test_a_node_that_reports_nowhere_tells_nothing() -> None:
    with preparing("installing requirements", NodeEnv(), pytest.fail):
        pass
