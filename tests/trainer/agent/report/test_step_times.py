"""The slowest rank of each node, and the slow ones."""

from __future__ import annotations

from kitjob.report import NodeAssignment
from kittrain.agent.report.step_times import StepTimes

NODES = {"0": NodeAssignment(ranks=(0, 1)), "4": NodeAssignment(ranks=(2, 3)), "7": NodeAssignment(ranks=(4, 5))}


def test_of_each_node_the_slowest_rank_that_is_known_counts() -> None:
    times = StepTimes(lambda _: None)
    times.observe({"busy": {"0": 0.25, "1": 0.5, "3": 0.12345}})
    assert times.slowest(NODES) == {"0": 0.5, "4": 0.1235}
    times.observe(None)  # nothing new
    assert times.slowest(NODES)["0"] == 0.5
    times.begin()
    assert times.slowest(NODES) == {}


def test_a_slow_rank_is_logged_once_in_each_round() -> None:
    lines: list[str] = []
    times = StepTimes(lines.append)
    for _ in range(2):
        times.observe({"slow": {"3": 1.52}})
        times.observe({"slow": {"3": 2.0}})
        assert times.slow == {"3": 2.0}
        times.begin()
    assert lines == ["rank 3 is slow: its steps take 1.5 times as long as the others'"] * 2
