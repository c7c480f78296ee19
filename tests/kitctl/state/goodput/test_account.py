"""Where a job's time went: for any history the buckets add up, and known losses come out as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kitctl.state import history
from kitctl.state.goodput.account import account
from kitctl.state.goodput.result import Goodput
from kitctl.state.history import Attempt, JobHistory, QueueWait
from kitjob import buckets, timeline
from kitjob.record import replace as replaced
from kitjob.timeline import AgentState, Clock, Event, Line, Row, Writer

STEP = {"DATA": 0.1, "FORWARD": 0.4, "BACKWARD": 0.3, "UPDATING": 0.1, "SYNCING": 0.1}
PHASES = sorted(buckets.PHASES)


def job(*writers: Sequence[Line], attempts: Sequence[Attempt] = (), nodes: int = 1, end: float = 100.0) -> JobHistory:
    lines = b"".join(json.dumps({"run": "r"}).encode() + b"\n" + timeline.content(one) for one in writers)
    return JobHistory(
        name="job",
        namespace="default",
        nodes=nodes,
        submitted=0.0,
        now=end,
        ended=end,
        run="r",
        attempts=tuple(attempts),
        lines=lines,
    )


def agent(node: int = 0, *, at: float = 2.0, name: str = "") -> list[Line]:
    """An agent that starts its ranks after 2 s."""
    return [
        Writer(node=node, id=name or f"{node}-{at}", time=at),
        AgentState(time=at, state="code"),
        AgentState(time=at + 0.5, state="start"),
        AgentState(time=at + 1.5, state="join"),
        AgentState(time=at + 2.0, state="ranks"),
    ]


def steps(begin: float, count: int, *, number: int = 1, first: int = 0, busy: float = 0.6) -> list[Line]:
    """Rows of a second with ten steps each, in which the rank does not wait for so many seconds."""
    phases = STEP | {"FORWARD": busy - 0.2, "BACKWARD": 0.9 - busy}
    return [
        Row(
            time=begin + second + 1,
            seconds=1.0,
            round=number,
            world=1,
            step=first + 10 * (second + 1),
            steps=10,
            phases=phases,
            phase="BACKWARD",
            busy=busy,
        )
        for second in range(count)
    ]


def done(at: float, outcome: str = "done") -> list[Line]:
    return [
        AgentState(time=at, state="exit"),
        Event(time=at, what="drained" if outcome == "drained" else "ended", outcome=outcome),
    ]


def seconds(found: Goodput) -> dict[str, float]:
    spent = {one.name: round(one.seconds, 3) for one in found.buckets if one.seconds > 0.001}
    return spent | ({"unknown": round(found.unknown_seconds, 3)} if found.unknown_seconds > 0.001 else {})


def test_an_undisturbed_job() -> None:
    lines = [*agent(), Event(time=4.0, what="first step", round=1), *steps(4.0, 90), *done(94.0)]
    found = account(job(lines, attempts=[Attempt(node=0, started=1.0, ended=95.0)]))
    assert seconds(found) == {
        "placement": 1.0,
        "image and code": 0.5,
        "start and join": 2.0,  # from the process' start
        "waiting for a peer": 0.5,
        "training": 81.0,
        "data wait": 9.0,
        "ended": 6.0,
    }
    assert (found.goodput, found.ettr, found.faults) == pytest.approx((0.81, 0.9, 0))


def test_a_killed_agent_a_repeated_step_and_a_straggler() -> None:
    healthy = [
        *agent(0, at=0.0),
        Event(time=2.0, what="first step", round=1),
        *steps(2.0, 20, busy=0.6),
        AgentState(time=22.0, state="stop", cause="node 1 is lost"),
        Event(time=22.0, what="fault", round=1, cause="node 1 is lost"),
        AgentState(time=23.0, state="join", cause="node 1 is lost"),
        AgentState(time=27.0, state="ranks"),
        Row(time=28.0, seconds=1.0, round=2, step=100, phases={"STARTING": 0.5, "RESTORING": 0.5}),
        Event(time=28.0, what="first step", round=2),
        Event(time=28.5, what="recovered", round=2, lost_steps=100),
        *steps(28.0, 20, number=2, first=100),
        *done(48.0),
    ]
    killed = [*agent(1, at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 19, busy=0.8)]
    again = [
        *agent(1, at=25.0),
        Row(time=28.0, seconds=1.0, round=2, step=100, phases={"STARTING": 0.5, "RESTORING": 0.5}),
        Event(time=28.0, what="first step", round=2),
        *steps(28.0, 20, number=2, first=100),
        *done(48.0),
    ]
    attempts = [
        Attempt(node=0, started=0.0, ended=48.0),
        Attempt(node=1, started=0.0, ended=22.0, how="was killed by signal 9"),
        Attempt(node=1, started=24.0, ended=48.0),
    ]
    found = account(job(healthy, killed, again, attempts=attempts, nodes=2, end=48.0))
    spent = seconds(found)
    assert (spent["recovery"], spent["repeated steps"], found.repeated_steps) == (12.0, 20.0, 100)
    assert found.carried_seconds == pytest.approx(1.0)
    waits = next(one for one in found.buckets if one.name == "waiting for a peer")
    in_steps = {one.part: one.seconds for one in waits.parts}["in steps"]
    assert in_steps == pytest.approx(19 * 0.2)  # node 1 is busy for 0.2 s of a second longer
    assert {one.cause for one in next(b for b in found.buckets if b.name == "recovery").parts} == {"node 1 is lost"}
    assert (found.unknown_seconds, found.overlap_seconds, found.faults) == (0.0, 0.0, 1)
    assert found.holds


@pytest.mark.parametrize(("how", "faults"), [("drained", 0), ("failed", 1)])
def test_ranks_that_a_drain_took_are_no_fault(how: str, faults: int) -> None:
    stays = [
        *agent(0, at=0.0),
        Event(time=2.0, what="first step", round=1),
        *steps(2.0, 20),
        Event(time=22.0, what="fault", round=1, cause="the ranks of node 1, pod job-1-abcde have failed"),
        *done(23.0, how),
    ]
    leaves = [*agent(1, at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 20), *done(22.5, how)]
    known = job(stays, leaves, nodes=2, end=23.0)
    assert account(known).faults == faults
    assert [one.what for one in history.events(known)].count("fault") == faults


def test_repeated_steps_are_counted_where_no_agent_is_left_to_tell() -> None:
    one = [*agent(at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 20)]
    two = [*agent(at=25.0), Event(time=27.0, what="first step", round=2), *steps(27.0, 20, number=2, first=90)]
    attempts = [Attempt(node=0, started=0.0, ended=22.0, how="was killed"), Attempt(node=0, started=25.0, ended=50.0)]
    found = account(job(one, two, attempts=attempts, end=50.0))
    assert found.repeated_steps == 101  # from step 100, where the first row ends, to step 200
    assert seconds(found)["repeated steps"] == pytest.approx(11.0)


def test_groups_whose_numbers_begin_anew_are_different_ones() -> None:
    def start(at: float, first: int, number: int) -> list[Line]:
        joined = Event(time=at + 1.9, what="joined", node=0, round=number, world=1, nodes=1)
        ready = Event(time=at + 2.0, what="first step", node=0, round=number)
        return [*agent(at=at), joined, ready, *steps(at + 2.0, 8, number=number, first=first)]

    again = [*start(0.0, 0, 1), AgentState(time=10.0, state="stop"), *start(10.0, 80, 2)[4:]]
    logs = [again, start(30.0, 160, 1), start(50.0, 240, 1)]  # each goes on where the last one ended
    attempts = [Attempt(node=0, started=at, ended=at + 20.0, how="was killed") for at in (0.0, 30.0, 50.0)]
    found = account(job(*logs, attempts=attempts, end=60.0))
    assert (found.repeated_steps, seconds(found).get("repeated steps", 0.0)) == (0, 0.0)
    told = [one.round for one in history.events(job(*logs)) if one.what == "joined"]
    assert told == [1, 2, 3, 4]


def test_a_scripts_own_evaluation_is_no_step_of_the_librarys_and_others_wait_for_it() -> None:
    def ranks(node: int, second: str, busy: float) -> list[Line]:
        row = Row(
            time=14.0, seconds=10.0, round=1, step=100, steps=100, phases={"SCRIPT": 10.0}, phase="SCRIPT", busy=10.0
        )
        return [
            *agent(node),
            Event(time=4.0, what="first step", round=1),
            row,
            replaced(row, time=24.0, steps=0, phases={second: 10.0}, busy=busy),
        ]

    evaluates, waits = ranks(0, "EVALUATING", 10.0), ranks(1, "SCRIPT", 0.0)
    found = account(job(evaluates, waits, nodes=2, end=24.0))
    assert seconds(found)["evaluation"] == pytest.approx(10.0)
    assert seconds(found)["waiting for a peer"] == pytest.approx(11.0)  # 1 s of it to form the group
    assert seconds(found)["training"] == pytest.approx(20.0)
    assert found.repeated_steps == 0


@pytest.mark.parametrize("begins", [4.0, 4.3, 4.9])
@pytest.mark.parametrize("lasts", [1.2, 8.0])
def test_an_evaluation_that_begins_and_ends_within_a_second_is_waited_for_all_the_time(
    begins: float, lasts: float
) -> None:
    """Rank 0 needs 0.1 s for a step and rank 1 0.4 s of half a second: 0.8 s of each second without an evaluation."""

    def ranks(node: int) -> list[Line]:
        rows: list[Line] = []
        for second in range(20):
            spent = max(min(second + 1, begins + lasts) - max(second, begins), 0.0)
            phases = {"SCRIPT": 1.0 - spent, "EVALUATING": spent} if spent and not node else {"SCRIPT": 1.0}
            busy = (1 - spent) * (0.8 if node else 0.2) + (0.0 if node else spent)
            phases = {phase: seconds for phase, seconds in phases.items() if seconds}
            rows.append(
                Row(time=second + 5.0, seconds=1.0, round=1, step=second + 1, phases=phases, phase="SCRIPT", busy=busy)
            )
        return [*agent(node, at=0.0), Event(time=4.0, what="first step", round=1), *rows]

    found = account(job(ranks(0), ranks(1), nodes=2, end=24.0))
    assert seconds(found)["evaluation"] == pytest.approx(lasts)
    in_steps = next(
        part.seconds
        for one in found.buckets
        if one.name == "waiting for a peer"
        for part in one.parts
        if part.part == "in steps"
    )
    assert in_steps == pytest.approx(lasts + (20 - lasts) * 0.6, abs=0.05)


@pytest.mark.parametrize(("taken", "repeated"), [(30, 30), (100, 100), (130, 100)])
def test_of_a_script_that_still_repeats_steps_those_count_that_it_has_taken_again(taken: int, repeated: int) -> None:
    def rows(number: int, begins: float, last: int) -> list[Line]:
        row = Row(time=begins + 10.0, seconds=10.0, round=number, step=last, steps=last, phases={"SCRIPT": 10.0})
        return [replaced(row, phase="SCRIPT")]

    lines = [
        *agent(at=0.0),
        Event(time=2.0, what="first step", round=1),
        *rows(1, 2.0, 200),
        AgentState(time=12.0, state="join", cause="rank 0 failed"),
        AgentState(time=13.0, state="ranks"),
        Event(time=13.0, what="first step", round=2),
        Event(time=13.5, what="recovered", round=2, lost_steps=100),
        *rows(2, 13.0, taken),
    ]
    assert account(job(lines, end=23.0)).repeated_steps == repeated


def test_a_second_training_of_a_script_repeats_nothing() -> None:
    one = [*agent(at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 20), *steps(22.0, 3)]
    two = [*agent(at=28.0), Event(time=30.0, what="first step", round=2), *steps(30.0, 10, number=2, first=20)]
    attempts = [Attempt(node=0, started=0.0, ended=25.0, how="was killed"), Attempt(node=0, started=28.0, ended=40.0)]
    found = account(job(one, two, attempts=attempts, end=40.0))
    assert (found.repeated_steps, seconds(found)["repeated steps"]) == pytest.approx((1, 1.0))


def test_a_node_that_is_done_recovers_from_nothing_though_its_last_lines_are_missing() -> None:
    lines = [*agent(), Event(time=4.0, what="first step", round=1), *steps(4.0, 90)]
    attempts = [Attempt(node=0, started=1.0, ended=98.0, done=True)]
    spent = seconds(account(job(lines, attempts=attempts)))
    assert ("recovery" in spent, spent["ended"]) == (False, 3.5)
    killed = seconds(account(job(lines, attempts=[Attempt(node=0, started=1.0, ended=98.0)])))
    assert killed["recovery"] == 3.5


def test_a_hang_is_idle_from_the_last_movement_on() -> None:
    lines = [
        *agent(at=0.0),
        Event(time=2.0, what="first step", round=1),
        *steps(2.0, 28),
        Row(time=50.0, seconds=20.0, round=1, step=280, phases={"BACKWARD": 20.0}, phase="BACKWARD"),
        Event(time=50.0, what="fault", round=1, cause="rank 0 hangs", since=30.0, outcome="hang"),
        AgentState(time=50.0, state="stop"),
        AgentState(time=51.0, state="exit"),
        Event(time=51.0, what="ended", outcome="fatal", cause="rank 0 hangs"),
    ]
    spent = seconds(account(job(lines, attempts=[Attempt(node=0, started=0.0, ended=51.0)], end=51.0)))
    assert (spent["idle after a hang"], spent["training"]) == pytest.approx((20.0, 28 * 0.9))


@pytest.mark.parametrize(
    "told", ["the ranks of node 0 have failed", "the ranks of node 0 timed out after 20000 ms in a collective"]
)
@pytest.mark.parametrize("phase", ["SCRIPT", "PREPARING"])  # with steps, and of a script without an optimizer
def test_a_collective_that_times_out_was_idle_on_all_nodes(phase: str, told: str) -> None:
    """The node whose rank sleeps hears of it from the others only, and nothing says when its rank last moved."""
    late = "rank 0 lost its peers (RuntimeError: Timed out waiting 20000ms for recv operation to complete)"

    def node(index: int, cause: str, since: float | None) -> list[Line]:
        first = [Event(time=2.0, what="first step", round=1)] if phase == "SCRIPT" else []
        rows = [Row(time=3.0 + at, seconds=1.0, round=1, phases={phase: 1.0}, phase=phase) for at in range(38)]
        fault = Event(time=40.0, what="fault", round=1, cause=cause, since=since)
        return [*agent(index, at=0.0), *first, *rows[:-1], replaced(rows[-1], time=40.0), fault, *done(40.0, "fatal")]

    attempts = [Attempt(node=index, started=0.0, ended=40.0) for index in range(2)]
    nodes = [node(0, late, 19.9), node(1, f"the ranks of node 0 {told}", None)]
    spent = seconds(account(job(*nodes, attempts=attempts, nodes=2, end=40.0)))
    assert spent["idle after a hang"] == pytest.approx(40.0, abs=0.2)
    assert spent["training" if phase == "SCRIPT" else "start and join"] >= 35.0
    assert "recovery" not in spent


def test_a_suspended_job_is_drained_until_it_is_resumed() -> None:
    one = [*agent(at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 8)]
    one += [AgentState(time=10.0, state="stop"), *done(11.0, "drained")]
    two = [*agent(at=40.0), Event(time=42.0, what="first step", round=1), *steps(42.0, 8, first=80), *done(50.0)]
    attempts = [Attempt(node=0, started=0.0, ended=11.0), Attempt(node=0, started=40.0, ended=50.0)]
    found = account(job(one, two, attempts=attempts, end=50.0))
    spent = seconds(found)
    assert spent["drained"] == pytest.approx(30.0)
    assert "recovery" not in spent
    assert found.unknown_seconds == 0.0


def test_waits_in_a_queue_are_those_before_the_start_and_between_two() -> None:
    one = [*agent(at=20.0), Event(time=22.0, what="first step", round=1), *steps(22.0, 8)]
    one += [AgentState(time=30.0, state="stop"), *done(31.0, "drained")]
    two = [*agent(at=60.0), Event(time=62.0, what="first step", round=1), *steps(62.0, 8, first=80), *done(70.0)]
    attempts = [Attempt(node=0, scheduled=51.0, started=60.0, ended=70.0)]  # the first pod is gone
    waits = (QueueWait(since=0.0, until=15.0), QueueWait(since=29.0, until=50.0))
    past = replace(job(one, two, attempts=attempts, end=70.0), waits=waits)
    spent = seconds(account(past))
    assert {name: spent[name] for name in ("queue", "placement", "image and code", "unknown")} == {
        "queue": 15.0 + (50.0 - 31.0),  # preempted while its agent runs
        "placement": 1.0,
        "image and code": 9.0 + 2 * 0.5,  # which each agent has, too
        "unknown": 5.0,  # from the first admission to the start of a pod that is gone
    }
    assert spent["drained"] == 1.0, "while its agent stops"
    told = [(one.what, one.time) for one in history.events(past) if one.what in {"queued", "admitted"}]
    assert told == [("queued", 0.0), ("admitted", 15.0), ("queued", 29.0), ("admitted", 50.0)]


def test_a_job_that_waits_again_is_in_its_queue_until_now_and_then_for_a_place() -> None:
    one = [*agent(at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 8), *done(11.0, "drained")]
    ran = Attempt(node=0, started=0.0, ended=11.0)
    waiting = replace(job(one, attempts=[ran], end=40.0), ended=None, waits=(QueueWait(since=21.0),))
    spent = seconds(account(waiting))
    assert (spent["drained"], spent["queue"]) == (10.0, 40.0 - 21.0)

    admitted = replace(waiting, waits=(QueueWait(since=21.0, until=30.0),))
    spent = seconds(account(replace(admitted, attempts=(ran, Attempt(node=0, scheduled=32.0)))))
    assert (spent["queue"], spent["placement"], spent["image and code"]) == (9.0, 2.0, 8.0 + 0.5)


def test_a_preempted_node_that_comes_again_waits_for_its_place_once_more() -> None:
    one = [*agent(at=20.0), Event(time=22.0, what="first step", round=1), *steps(22.0, 8)]
    one += [AgentState(time=30.0, state="stop"), *done(31.0, "drained")]
    two = [*agent(at=60.0), Event(time=62.0, what="first step", round=1), *steps(62.0, 8, first=80), *done(70.0)]
    gone = Attempt(node=0, created=4.0, scheduled=4.0, started=19.0)
    again = Attempt(node=0, created=33.0, scheduled=51.0, started=60.0, ended=70.0)
    found = account(job(one, two, attempts=[gone, again], end=70.0))
    spent = seconds(found)
    assert (spent["placement"], spent["drained"]) == (4.0 + 18.0, 1.0 + 2.0)
    assert spent["image and code"] == 15.0 + 9.0 + 2 * 0.5  # which each agent has, too
    assert (found.unknown_seconds, found.overlap_seconds) == (0.0, 0.0)
    waits = replace(again, scheduled=None, started=None, ended=None)
    waiting = replace(job(one, attempts=[gone, waits], end=50.0), ended=None)
    assert seconds(account(waiting))["placement"] == 4.0 + 17.0
    unseen = Attempt(node=0, created=2.0, scheduled=2.0, started=3.0)  # it was lost before it wrote a line
    spent = seconds(found := account(job(two, attempts=[unseen, again], end=70.0)))
    assert (spent["placement"], found.unknown_seconds) == (51.0, 0.0)


lengths = st.integers(0, 30)


@given(st.lists(st.tuples(lengths, lengths, lengths, lengths), min_size=1, max_size=4), lengths)
@example([(0, 0, 0, 1), (30, 0, 0, 0)], 0)
def test_a_job_that_is_preempted_again_and_again_has_each_second_once(
    starts: list[tuple[int, int, int, int]], again: int
) -> None:
    """Each start waits for quota, for a place and for its image, and then takes steps; at last it waits again."""
    at, logs, attempts, waits = 0.0, list[list[Line]](), list[Attempt](), list[QueueWait]()
    for number, (queue, place, image, trained) in enumerate(starts):
        admitted, scheduled = at + queue, at + queue + place
        started = scheduled + image
        first = started + 2.0  # as of an agent here
        end = first + trained + 1.0
        lines = [*agent(at=started), Event(time=first, what="first step", round=1), *steps(first, trained)]
        logs.append([*lines, AgentState(time=end - 1.0, state="stop"), *done(end, "drained")])
        attempts.append(Attempt(node=0, created=admitted, scheduled=scheduled, started=started, ended=end))
        waits.append(QueueWait(since=max(at - 0.5, 0.0) if number else at, until=admitted))  # while it still drains
        at = end
    waits.append(QueueWait(since=at - 0.5))
    past = job(*logs, attempts=attempts, end=at + again)
    spent = seconds(found := account(replace(past, ended=None, waits=tuple(waits))))
    assert spent.get("queue", 0.0) == sum(one[0] for one in starts) + again
    assert spent.get("placement", 0.0) == sum(one[1] for one in starts)
    assert spent["image and code"] == sum(one[2] for one in starts) + 0.5 * len(starts)
    assert spent.get("training", 0.0) + spent.get("data wait", 0.0) + spent.get("repeated steps", 0.0) == pytest.approx(
        sum(one[3] for one in starts)
    )
    assert (found.overlap_seconds, found.unknown_seconds) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_a_clock_that_is_wrong_is_corrected() -> None:
    lines = [*agent(at=302.0), Event(time=304.0, what="first step", round=1), *steps(304.0, 90), *done(394.0)]
    skewed = [lines[0], Clock(time=303.9, offset=-300.0, error=0.001), *lines[1:]]
    found = account(job(skewed, attempts=[Attempt(node=0, started=1.0, ended=95.0)]))
    assert (seconds(found)["training"], found.unknown_seconds) == (81.0, 0.0)
    assert [event.time for event in history.events(job(skewed)) if event.what == "first step"] == [4.0]


def test_what_nothing_covers_is_unknown_and_no_account() -> None:
    lines = [*agent(), Event(time=4.0, what="first step", round=1), *steps(4.0, 10), *steps(64.0, 30), *done(94.0)]
    found = account(job(lines, attempts=[Attempt(node=0, started=1.0, ended=95.0)]))
    assert (found.unknown_seconds, found.holds) == (50.0, False)


def test_what_is_measured_twice_is_an_error() -> None:
    one = [*agent(name="a"), Event(time=4.0, what="first step", round=1), *steps(4.0, 90), *done(94.0)]
    two = [*agent(name="b", at=50.0), *steps(52.0, 40), *done(92.0)]
    found = account(job(one, two))
    assert found.overlap_seconds > 30
    assert not found.holds


@pytest.mark.parametrize("set_back", [3600.0, 86400.0], ids=["an hour", "a day"])
@pytest.mark.parametrize("submitted", [0.0, -90000.0], ids=["at once", "a day before"])
def test_a_clock_that_was_set_back_is_told_as_no_number_can_be_right(set_back: float, submitted: float) -> None:
    """The second agent starts 50 s after the first one, by a clock that shows less."""
    at = 50.0 - set_back
    one = [*agent(at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 45)]
    two = [*agent(at=at), Event(time=at + 2, what="first step", round=2), *steps(at + 2, 40, number=2, first=300)]
    attempts = [Attempt(node=0, started=0.0, ended=48.0), Attempt(node=0, started=at, ended=at + 45)]
    known = job(one, [*two, *done(at + 42)], attempts=attempts, end=at + 45)
    found = account(replace(known, submitted=submitted))
    assert found.clock_jump_seconds == pytest.approx(set_back, abs=120)
    assert not found.holds


def test_a_clock_that_was_set_forward_is_seen_by_the_end_of_the_job() -> None:
    """The second agent starts after 50 s, by a clock that shows 300 s more, and nobody is left to compare it with."""
    one = [*agent(at=0.0), Event(time=2.0, what="first step", round=1), *steps(2.0, 45)]
    two = [*agent(at=350.0), Event(time=352.0, what="first step", round=2), *steps(352.0, 40, number=2, first=300)]
    found = account(job(one, [*two, *done(392.0)], attempts=[Attempt(node=0, started=0.0, ended=48.0)]))
    assert found.clock_jump_seconds == pytest.approx(292.0)
    assert not found.holds
    drains = replace(job(one, two), result="Cancelled")
    assert account(drains).clock_jump_seconds == 0.0, "with a grace period of minutes"
    ahead = [Attempt(node=0, started=0.0, ended=48.0), Attempt(node=0, started=350.0)]
    assert account(job(one, attempts=ahead)).clock_jump_seconds == pytest.approx(250.0)


def test_a_clock_set_between_a_nodes_agents_on_one_machine_is_seen_by_their_times() -> None:
    one = [Writer(node=0, id="a", time=0.0, host="worker"), *agent(at=0.0)[1:], *steps(2.0, 8000), *done(8002.0)]
    two = [Writer(node=0, id="b", time=4500.0, host="worker"), *agent(at=4500.0)[1:], *steps(4502.0, 10)]
    assert account(job(one, two, end=8100.0)).clock_jump_seconds == pytest.approx(3500, abs=10)


def test_a_clock_of_node_0_that_was_set_is_seen_from_another_node() -> None:
    lines = [*agent(1), Event(time=4.0, what="first step", round=1), *steps(4.0, 90), *done(94.0)]
    clocks = [Clock(time=3.9, offset=0.1, error=0.001), Clock(time=60.0, offset=-86400.0, error=0.001)]
    measured = sorted([*lines[1:], *clocks], key=lambda line: getattr(line, "time", 0.0))
    assert account(job([lines[0], *measured], nodes=2)).clock_jump_seconds == pytest.approx(86400.1)


def test_a_clock_that_drifts_is_none_that_was_set() -> None:
    lines = [*agent(1, at=-3.0), *steps(-1.0, 90), *done(94.0)]
    clocks = [Clock(time=-2.9, offset=0.1, error=0.001), Clock(time=60.0, offset=3.0, error=0.001)]
    again = [*agent(1, at=92.0), *done(95.0)]
    found = account(
        job([lines[0], *sorted([*lines[1:], *clocks], key=lambda line: getattr(line, "time", 0.0))], again, nodes=2)
    )
    assert found.clock_jump_seconds == 0.0


def test_lines_that_are_in_two_files_count_once() -> None:
    lines = [*agent(), Event(time=4.0, what="first step", round=1), *steps(4.0, 90), *done(94.0)]
    once, twice = (account(job(*[lines] * times)) for times in (1, 2))
    assert once == twice


times = st.floats(0.0, 200.0)
lines_of_any_kind = st.one_of(
    st.builds(
        AgentState, time=times, state=st.sampled_from(["code", "start", "join", "ranks", "stop", "barrier", "exit"])
    ),
    st.builds(
        Row,
        time=times,
        seconds=st.floats(0.0, 20.0),
        round=st.integers(0, 3),
        step=st.none() | st.integers(0, 500),
        steps=st.integers(0, 50),
        phases=st.dictionaries(st.sampled_from(PHASES), st.floats(0.0, 20.0), max_size=4),
        busy=st.floats(0.0, 20.0),
    ),
    st.builds(
        Event,
        time=times,
        what=st.sampled_from(["first step", "fault", "recovered", "ended", "drained", "snapshot"]),
        round=st.integers(0, 3),
        since=st.none() | times,
        lost_steps=st.integers(0, 100),
        outcome=st.sampled_from(["", "done", "drained", "retryable", "fatal"]),
    ),
    st.builds(Clock, time=times, offset=st.floats(-50.0, 50.0)),
)
writer_logs = st.builds(
    lambda node, at, name, lines: [Writer(node=node, id=str(name), time=at), *sorted(lines, key=lambda one: one.time)],
    st.integers(0, 2),
    times,
    st.integers(0, 5),
    st.lists(lines_of_any_kind, max_size=12),
)
attempts_of_any_kind = st.lists(
    st.builds(
        Attempt,
        node=st.integers(0, 2),
        scheduled=st.none() | times,
        started=st.none() | times,
        ended=st.none() | times,
        how=st.sampled_from(["", "was killed"]),
    ),
    max_size=6,
)


waits_of_any_kind = st.lists(st.builds(QueueWait, since=times, until=st.none() | times), max_size=3).map(tuple)


TINY = Row(time=2.0, seconds=1.5, phases={"BACKWARD": 5e-324})  # a product with it is rounded to a multiple of it


@given(st.lists(writer_logs, max_size=5), attempts_of_any_kind, waits_of_any_kind)
@example([[Writer(node=0, id="0", time=0.0), AgentState(time=0.0, state="ranks"), TINY]], [], ())
def test_whatever_the_history_the_buckets_add_up(
    logs: list[list[Line]], attempts: list[Attempt], waits: tuple[QueueWait, ...]
) -> None:
    known = job(*logs, attempts=attempts, nodes=3, end=150.0)
    found = account(replace(known, waits=waits))
    assert all(one.seconds >= 0 and part.seconds >= 0 for one in found.buckets for part in one.parts)
    assert found.unknown_seconds >= -1e-6
    total = sum(one.seconds for one in found.buckets) + found.unknown_seconds
    assert total == pytest.approx(found.node_seconds, abs=1e-6)
    assert 0 <= found.goodput <= found.ettr <= 1 + 1e-9
    assert history.events(known)


def test_the_time_of_a_spare_is_its_own_until_it_replaces_a_node() -> None:
    spare: list[Line] = [*agent(), AgentState(time=5.0, state="spare"), AgentState(time=41.0, state="ranks")]
    early = Row(time=43.0, seconds=2.0, round=2, world=1, phases={"STARTING": 1.0, "RESTORING": 1.0})
    first = Event(time=43.0, what="first step", round=2)
    end: list[Line] = [AgentState(time=63.0, state="exit"), Event(time=63.0, what="ended", outcome="done")]
    lines = [*spare[:4], *spare[5:], early, first, *steps(43.0, 20, number=2), *end]
    lost = Event(time=40.5, what="fault", cause="node 1 is lost", round=1)
    found = account(job([*lines[:-2], lost, *lines[-2:]], end=63.0))
    seconds = {one.name: one.seconds for one in found.buckets}
    assert seconds["spare"] == pytest.approx(36.0)
    assert seconds["recovery"] == pytest.approx(2.0)
    assert found.unknown_seconds == pytest.approx(2.0)  # nothing is known of the time before the agent
