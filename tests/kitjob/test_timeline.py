"""A history's lines, and what makes them fewer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kitjob import timeline
from kitjob.thinning import thin
from kitjob.timeline import AgentState, Clock, Dropped, Event, Line, Row, Writer

WRITER = Writer(node=1, id="7-1", time=1000.0, pod="job-1")
LINES: list[Line] = [
    WRITER,
    AgentState(time=1000.0, state="ranks"),
    Clock(time=1000.1, offset=-12.5, error=0.001),
    Row(time=1002.0, seconds=1.0, round=1, world=2, step=5, steps=3, phases={"DATA": 0.25, "FORWARD": 0.75}),
    Event(time=1002.5, what="fault", cause='rank 1 said "näh"\n', node=1, since=990.0),
    Dropped(lines=3),
]


def rows(count: int, *, world: int = 2) -> list[Line]:
    return [
        Row(
            time=1000.0 + second,
            seconds=1.0,
            round=1,
            world=world,
            step=3 * second,
            steps=3,
            phases={"DATA": 0.25, "FORWARD": 0.75},
            busy=0.5,
            loss=1 / second,
            samples_per_second=float(second),
        )
        for second in range(1, count + 1)
    ]


def test_a_line_comes_back_as_it_was() -> None:
    assert [*timeline.lines(timeline.content(LINES))] == LINES


def test_a_file_that_was_cut_at_any_byte_gives_its_whole_lines() -> None:
    content = timeline.content(LINES)
    for size in range(len(content) + 1):
        whole = content[:size].count(b"\n")
        assert [*timeline.lines(content[:size])] == LINES[:whole]


def test_what_is_no_line_is_left_out() -> None:
    content = timeline.content(LINES)
    for noise in (
        b"\0\0\0\n",
        b"{}\n",
        b"[]\n",
        b'{"kind":"later"}\n',
        b'{"kind":"row"}\n',
        b'{"kind":"row","time":"x"}\n',
    ):
        assert [*timeline.lines(noise + content)] == LINES
    newer = content.replace(b'"seconds"', b'"gpuMemory":7,"seconds"')
    assert [*timeline.lines(newer)] == LINES


def test_a_thinned_history_is_small_and_keeps_its_sums() -> None:
    whole = [WRITER, *rows(1000), Event(time=2000.0, what="snapshot", step=7)]
    limit = len(timeline.content(whole)) // 10
    thinned = thin(whole, limit)
    assert len(timeline.content(thinned)) <= limit
    found = [line for line in thinned if isinstance(line, Row)]
    assert sum(row.seconds for row in found) == 1000
    assert sum(row.steps for row in found) == 3000
    assert sum(row.phases["DATA"] for row in found) == 250
    assert max(row.seconds for row in found) <= 4 * min(row.seconds for row in found[:-1])
    assert found[-1].loss == 1 / 1000
    assert thinned[0] == WRITER
    assert thinned[-1] == whole[-1]


def test_rows_of_different_groups_stay_apart() -> None:
    whole = [*rows(50), AgentState(time=1050.0, state="join"), *rows(50, world=3)]
    thinned = thin(whole, 1200)
    assert {row.world for row in thinned if isinstance(row, Row)} == {2, 3}
    assert sum(row.seconds for row in thinned if isinstance(row, Row) and row.world == 3) == 50


def test_too_many_events_are_dropped_from_the_middle() -> None:
    whole: list[Line] = [WRITER, *(Event(time=float(number), what="fault") for number in range(1000))]
    thinned = thin(whole, 4096)
    assert len(timeline.content(thinned)) <= 4096
    (dropped,) = (line for line in thinned if isinstance(line, Dropped))
    assert dropped.lines == len(whole) - len(thinned) + 1
    assert (thinned[0], thinned[-1]) == (WRITER, whole[-1])
    again = thin(thinned, 2048)
    assert sum(line.lines for line in again if isinstance(line, Dropped)) == len(whole) - len(again) + 1


@given(st.integers(1, 100_000))
def test_the_files_of_all_nodes_fit_into_a_run(nodes: int) -> None:
    if nodes <= timeline.RUN_BYTES // timeline.LEAST_BYTES:
        assert nodes * timeline.node_bytes(nodes) <= timeline.RUN_BYTES
