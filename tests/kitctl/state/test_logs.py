"""Merging several log streams into one."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.state.logs import Filter, Line, merge, parse, reorder, tail

TIMES = st.integers(0, 999).map(lambda ms: f"2026-01-01T00:00:00.{ms:06}Z")


def lines_of(streams: list[list[str]]) -> list[list[Line]]:
    """Log lines from one list of times per node; each text identifies its line."""
    return [[Line(time, node, f"{node}.{i}") for i, time in enumerate(times)] for node, times in enumerate(streams)]


STREAMS = st.lists(st.lists(TIMES, max_size=8).map(sorted), max_size=4).map(lines_of)


def test_a_line_is_its_time_and_its_text() -> None:
    line = parse("2026-01-01T00:00:00.000001Z [rank 7]: loss 0.5\n", 2)
    assert (line.time, line.node, line.rank, line.text) == ("2026-01-01T00:00:00.000001Z", 2, 7, "[rank 7]: loss 0.5")


@pytest.mark.parametrize("raw", ["no time at all", "", "2026 was a good year"])
def test_a_line_without_a_time_is_kept_whole(raw: str) -> None:
    assert parse(raw, 0) == Line("", 0, raw)
    assert parse(raw, 0).text == raw


@pytest.mark.parametrize("text", ["[agent 1]: rank 3 failed", "said [rank 3]: no", "[rank x]: y"])
def test_only_the_prefix_names_a_rank(text: str) -> None:
    assert Line("", 0, text).rank is None


@given(STREAMS)
def test_merging_loses_no_line_and_sorts_by_time(streams: list[list[Line]]) -> None:
    merged = list(merge(streams))
    assert [line.time for line in merged] == sorted(line.time for line in merged)
    for node, stream in enumerate(streams):
        assert [line.text for line in merged if line.node == node] == [line.text for line in stream]


def flat(batches: Iterable[list[Line]]) -> list[Line]:
    return [line for batch in batches for line in batch]


@given(STREAMS, st.lists(st.integers(1, 5), max_size=20))
def test_reordering_returns_each_line_once(streams: list[list[Line]], sizes: list[int]) -> None:
    lines = [line for stream in streams for line in stream]
    batches, rest = [], list(lines)
    for size in sizes:
        batches.append(rest[:size])
        rest = rest[size:]
    settled = flat(reorder([*batches, rest], lambda: "2026-01-01T00:00:00.000500Z", lambda: "9999"))
    assert sorted(line.text for line in settled) == sorted(line.text for line in lines)


def test_a_late_line_of_another_node_is_sorted_by_its_time() -> None:
    first, second = Line("2026-01-01T00:00:01Z", 0, "first"), Line("2026-01-01T00:00:02Z", 1, "second")
    horizons = iter(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"])
    settled = flat(reorder([[second], [first], []], lambda: next(horizons), lambda: "9999"))
    assert [line.text for line in settled] == ["first", "second"]


def test_filters() -> None:
    lines = [Line(f"2026-01-0{i}T00:00:00Z", i % 2, f"[rank {i}]: loss {i}") for i in range(1, 5)]

    def kept(**wanted: object) -> list[int | None]:
        return [line.rank for line in lines if Filter(**wanted).matches(line)]  # type: ignore[arg-type]

    assert kept() == [1, 2, 3, 4]
    assert kept(ranks=frozenset({2, 3})) == [2, 3]
    assert kept(nodes=frozenset({1})) == [1, 3]
    assert kept(since="2026-01-03") == [3, 4]
    assert kept(include=re.compile("loss [12]"), exclude=re.compile("1$")) == [2]


def test_lines_with_equal_times_keep_their_nodes_order() -> None:
    stream = [Line("2026-01-01T00:00:00Z", 0, text) for text in "cab"]
    other = [Line("2026-01-01T00:00:00Z", 1, "x")]
    assert [line.text for line in merge([other, stream])] == ["c", "a", "b", "x"]


def test_the_tail_of_a_long_stream() -> None:
    lines = [Line("", 0, str(i)) for i in range(100)]
    assert [line.text for line in tail(iter(lines), 2)] == ["98", "99"]
    assert list(tail(lines, None)) == lines


def test_a_line_from_the_future_is_held_no_longer_than_others() -> None:
    """A node's clock is ahead, or was set back: its lines must not wait until the others reach that time."""
    ahead, later = Line(time="2026-01-02", node=0, text="ahead"), Line(time="2026-01-01T00:00:09", node=1, text="later")
    clock = iter(["2026-01-01T00:00:01", "2026-01-01T00:00:09", "2026-01-01T00:00:09"])
    limits = iter(["2025", "2026-01-01T00:00:07", "2026-01-01T00:00:10"])
    settled = flat(reorder([[ahead], [later], []], lambda: next(limits), lambda: next(clock)))
    assert [line.text for line in settled] == ["ahead", "later"]


def test_lines_that_are_due_together_come_together_in_the_order_of_time_and_node() -> None:
    """Those of one time and node stay as they came."""
    second = "2026-01-01T00:00:02Z"
    arriving = [Line(second, 1, "c"), Line(second, 0, "b"), Line(second, 0, "a"), Line("2026-01-01T00:00:01Z", 1, "z")]
    late = Line("2026-01-01T00:00:09Z", 0, "late")
    limits = iter(["", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"])
    batches = reorder([[late], arriving, []], lambda: next(limits), lambda: "9999")
    assert [[line.text for line in batch] for batch in batches] == [[], ["z", "b", "a", "c"], [], ["late"]]
