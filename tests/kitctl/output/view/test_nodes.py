"""Rows of nodes: those that are alike together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kitctl.output.view.nodes import MOST_ROWS, groups, node_table
from kitctl.state.phase import NodeState

PENDING = "0/900 nodes are available: 900 Insufficient nvidia.com/gpu"


def node(index: int, **changes: Any) -> NodeState:
    found = NodeState(
        index=index, state="Running", ranks=(index,), pod=f"p-{index}", host="h", restarts=0, since=1.0, reason=""
    )
    return msgspec.structs.replace(found, **changes)


def many() -> Iterator[NodeState]:
    for index in range(1000):
        if index == 998:
            yield node(index, state="Lost", reason="OOMKilled (exit code 137)", restarts=2, ranks=())
        elif 100 <= index < 220:
            yield node(index, state="Pending", reason=PENDING, host="", since=None, ranks=())
        else:
            yield node(index, host=f"h{index // 8}")


def test_few_nodes_are_shown_one_by_one() -> None:
    rows = node_table([node(index) for index in range(8)], now=11.0)
    assert [row.split()[:2] for row in rows[1:]] == [[str(index), "Running"] for index in range(8)]


def test_of_a_thousand_nodes_the_lost_one_comes_first() -> None:
    rows = node_table([*many()], now=11.0)
    assert len(rows) < 10
    assert rows[1].split()[:2] == ["998", "Lost"]
    assert rows[1].endswith("OOMKilled (exit code 137)")
    assert rows[2].split()[:2] == ["100-219", "Pending"]
    assert PENDING in rows[2]
    assert rows[3].startswith("0-99, 220-997, 999   Running")
    assert "879 pods" in rows[3]
    assert "111 hosts" in rows[3]
    assert rows[-1] == "(-o wide shows 1000 nodes one by one)"
    assert len(node_table([*many()], now=11.0, wide=True)) == 1001


def test_a_reason_that_names_its_own_pod_is_alike() -> None:
    found = groups([node(index, state="Pending", reason=f"pod p-{index} is not scheduled") for index in range(20)])
    assert [len(one.nodes) for one in found] == [20]


def test_a_thousand_different_reasons_fit_a_screen_and_lose_no_state() -> None:
    nodes = [node(index, state="Pending", reason=f"reason {index // 2}") for index in range(999)]
    found = groups([*nodes, node(999, state="Lost", reason="gone")])
    assert len(found) <= MOST_ROWS
    assert [len(one.nodes) for one in found] == [1, 999]
    assert found[1].reason == "reason 0 (and 499 other reasons)"


def test_restarts_and_ages_of_alike_nodes_are_together() -> None:
    nodes = [node(index, restarts=index % 2, since=float(index)) for index in range(10)]
    (_, row, *_) = node_table(nodes, now=20.0)
    assert row.split() == ["0-9", "Running", "0-9", "10", "pods", "h", "5", "11s-20s"]


def test_numbers_that_are_scattered_are_counted() -> None:
    nodes = [node(index, state="Running" if index % 2 else "Joining", ranks=()) for index in range(100)]
    assert [row.split("   ")[0] for row in node_table(nodes, now=20.0)[1:3]] == [
        "0, 2, 4, 6, 8, ... (50)",
        "1, 3, 5, 7, 9, ... (50)",
    ]
