"""A node's preparation is in the report for as long as it takes."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kitjob.run import RunFacts
from kittrain.agent.setup import preparation
from kittrain.agent.setup.preparation import Unreached, preparing
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


DROPPED = "waiting for node 0 at job-0.job:29400 (timed out)"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[str]]]:
    """What is reported after an attempt with this error, which has failed so for as long as it takes."""
    clock = itertools.count(100.0, preparation.UNREACHED_FOR)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    unreached = Unreached(NodeEnv(run=RunFacts(report=f"file:{tmp_path}/report.json"), node_index=1), pytest.fail)

    def what(reason: str) -> list[str]:
        unreached.waits(reason)
        return [json.loads(path.read_text())["what"] for path in tmp_path.iterdir()]

    yield what
    unreached.reached()
    assert not [*tmp_path.iterdir()], "it is taken back"


def test_a_way_to_node_0_that_is_closed_for_long_is_reported_ever_less_often(
    told: Callable[[str], list[str]], tmp_path: Path
) -> None:
    assert told(DROPPED) == []
    written = []
    for _ in range(10):
        assert told(DROPPED) == [DROPPED]
        written.append((tmp_path / "preparing-1.json").stat().st_mtime_ns)
    assert len(set(written)) == 4, "after 30, 60, 120 and 240 seconds"


def test_a_port_that_is_not_open_yet_is_none(told: Callable[[str], list[str]]) -> None:
    for _ in range(10):
        assert told("waiting for node 0 at job-0.job:29400 ([Errno 111] Connection refused)") == []


@pytest.mark.parametrize(
    "why",
    [
        "node 0 has the run's secret, and this node has none",
        "node 0 has no secret, and this node has the run's secret",
        "the other end does not know this run's secret: another secret, or another run",
    ],
)
def test_a_secret_that_only_one_of_both_has_is_reported(told: Callable[[str], list[str]], why: str) -> None:
    reason = f"waiting for the rendezvous of this run at job-0.job:29400 ({why})"
    assert [told(reason), told(reason)] == [[], [reason]]
