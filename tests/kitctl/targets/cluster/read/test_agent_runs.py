"""Which agent runs have lines that no pod's log has any more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.base import names
from kitctl.kinds.indexed_job import INDEX
from kitctl.state.logs import Line
from kitctl.targets.cluster.read.agent_runs import AgentRun, ReadLog, count_missing, lines_after, unread_runs
from kitjob.report import NodeAssignment, Report


def life(started: float, pod: str = "run-0-a", node: int = 0) -> AgentRun:
    return AgentRun(node=node, started=started, pod=pod, file=f"node-{node}/{started * 1000:.0f}-{pod}.log")


def line(second: float, text: str) -> Line:
    return Line(f"2026-11-22T10:00:{second:012.9f}Z", 0, text)


def test_lines_read_from_a_pod_are_not_read_again() -> None:
    kept = [life(10.2), life(20.7, "run-0-b"), life(10.4, "run-1-a", 1)]
    read = [ReadLog(pod="run-0-b", started=20.0), ReadLog(pod="run-1-a", started=10.0, whole=False, last=line(1, "x"))]
    assert unread_runs(kept, read) == [(kept[0], None), (kept[2], line(1, "x"))]
    assert unread_runs(kept, []) == [(one, None) for one in kept]


def test_pods_of_one_name_are_distinguished_by_start_time() -> None:
    kept = [life(10.2), life(20.2), life(30.2)]
    assert unread_runs(kept, [ReadLog(pod="run-0-a", started=20.0), ReadLog(pod="run-0-a", started=30.0)]) == [
        (kept[0], None)
    ]


TEXTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12)


@given(TEXTS, st.integers(0, 11), st.floats(0.0, 3.0))
def test_after_a_broken_connection_no_line_is_lost(texts: list[str], at: int, delay: float) -> None:
    """The copy's time of a line is shortly before the kubelet's."""
    at = min(at, len(texts) - 1)
    kept = [line(second, f"{second} {text}") for second, text in enumerate(texts)]
    last = line(at + delay, kept[at].text)
    assert list(lines_after(kept, last)) == kept[at + 1 :]


def test_without_a_last_line_all_lines_are_returned() -> None:
    kept = [line(second, str(second)) for second in range(4)]
    assert list(lines_after(kept, None)) == kept
    assert list(lines_after(kept, line(1.5, "not by the agent"))) == kept[2:]
    assert list(lines_after([], line(1, "x"))) == []


def job(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "run"},
        "status": {"startTime": "2026-11-22T10:00:00Z"} | status,
    }


def pod(node: int, second: int, *, ended: bool = False, leaving: bool = False) -> dict[str, Any]:
    at = f"1970-01-01T00:00:{second:02}Z"
    state = (
        {"terminated": {"startedAt": at, "finishedAt": at, "exitCode": 1}} if ended else {"running": {"startedAt": at}}
    )
    labels = {INDEX: str(node)}
    return {
        "metadata": {"name": f"run-{node}", "labels": labels} | ({"deletionTimestamp": at} if leaving else {}),
        "status": {"containerStatuses": [{"name": names.CONTAINER, "state": state}]},
    }


NEVER_STARTED = {
    "metadata": {"name": "run-0", "labels": {INDEX: "0"}},
    "status": {"containerStatuses": [{"name": names.CONTAINER, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
}


def report_of(*agent_runs: int, joined: float = 15.5) -> Report:
    nodes = {str(node): NodeAssignment(joined=joined, agent_runs=count) for node, count in enumerate(agent_runs)}
    return Report(formed=1.0, nodes=nodes)


@pytest.mark.parametrize(
    ("status", "pods", "report", "count"),
    [
        ({}, [pod(0, 10), pod(1, 10)], report_of(1, 1), 0),
        ({}, [pod(0, 10), pod(1, 15)], report_of(1, 2), 1),  # one was replaced, and has joined
        ({}, [pod(0, 10), pod(1, 20)], report_of(1, 1), 1),  # one was replaced, and has not joined yet
        ({}, [pod(0, 10), pod(1, 10, ended=True), pod(1, 15)], report_of(1, 2), 0),  # its first pod is still there
        ({}, [pod(0, 10)], report_of(1, 1), 1),
        ({}, [pod(0, 10), pod(1, 10)], report_of(0, 0), 0),  # there are no log copies
        ({}, [], report_of(0, 0), 2),
        ({}, [pod(0, 10, ended=True, leaving=True)], report_of(1), 1),  # its kubelet may have removed its log
        ({}, [], None, 1),
        ({}, [NEVER_STARTED, NEVER_STARTED], None, 0),
        ({"failed": 1}, [NEVER_STARTED], None, 1),
        ({"startTime": None}, [], None, 0),  # it waits in a queue
        ({"failed": 3}, [pod(0, 10, ended=True), pod(0, 20)], None, 2),
    ],
)
def test_agent_runs_without_a_pod_are_counted(status: Any, pods: Any, report: Report | None, count: int) -> None:
    assert count_missing(job(**status), pods, report) == count
