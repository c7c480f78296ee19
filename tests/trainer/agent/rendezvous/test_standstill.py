"""What is told of ranks that take no step: where they are, and nothing of those that may be on their way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kittrain.agent.rendezvous.diagnosis import Diagnosis, RankStatus
from kittrain.agent.rendezvous.membership import Node
from kittrain.agent.rendezvous.stacks import BACKWARD, BUILD, GROUP, Location
from kittrain.agent.rendezvous.standstill import LIMIT, ONE_WAY_APART, WAITING_TIMEOUT, StandstillWatch, sentence
from kittrain.system.calls import Call
from kittrain.system.heartbeat import Phase


def rank(number: int, line: str = "h.py:5 in step", *, wait: str = "", loads: bool = False, **more: Any) -> RankStatus:
    facts: dict[str, Any] = {"phase": Phase.SCRIPT, "has_stack": True, "frozen": False, "stepped": True}
    facts |= {"grouped": True, "stalled_seconds": 42.0, "location": Location(line=line, wait=wait, loads=loads)} | more
    return RankStatus(rank=number, step=9, **facts)


def call(length: int) -> Call:
    return Call(number=3, group=1, size=4 * length, name="all_reduce", tensor=f"[{length}] float32")


def from_rank(root: int) -> Call:
    return replace(call(4), name="broadcast", root=root)


def of_group(group: int) -> Call:
    return replace(call(4), group=group)


JOINING: Any = {"phase": Phase.STARTING, "stepped": False, "grouped": False}


def tries(number: int, **more: Any) -> RankStatus:
    """A rank that connects to a server before its first step."""
    one = rank(number, **(JOINING | {"stalled_seconds": 16.0} | more))
    return replace(one, location=Location(line="h.py:5 in load", tries=True))


SLEEPS = rank(1, "h.py:5 in <module>")


def locked(number: int, code: str = "its.lock.acquire()") -> RankStatus:
    """A rank that sleeps in native code."""
    return rank(number, location=Location(line="h.py:5 in step", code=code))


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([rank(0, wait=BACKWARD), SLEEPS], "rank 1 sleeps at h.py:5, rank 0 waits in all_reduce of its backward pass"),
        ([rank(0, wait=BACKWARD), locked(1)],
         "rank 1 sleeps in `its.lock.acquire()` at h.py:5 in step, rank 0 waits in all_reduce of its backward pass"),
        ([rank(0, wait=BACKWARD), locked(1), locked(2)],
         "ranks 1-2 sleep in `its.lock.acquire()` at h.py:5 in step, rank 0 waits in all_reduce of its backward pass"),
        ([locked(0), locked(1, "queue.get()")],
         "rank 0 sleeps in `its.lock.acquire()` at h.py:5 in step, rank 1 sleeps in `queue.get()` at h.py:5 in step"),
        ([rank(0, wait="barrier"), locked(1, 60 * "x"), locked(2, 60 * "y")],
         "ranks 1-2 sleep at h.py:5 in step, rank 0 waits in barrier at h.py:5 in step"),
        ([rank(0, "a.py:9 in f", wait="barrier"), rank(1, busy=True)],
         "rank 1 is busy at h.py:5 in step, rank 0 waits in barrier at a.py:9 in f"),
        ([rank(0, wait="barrier"), rank(1, "h.py:6 in step", wait="all_gather")],
         "rank 0 waits in barrier at h.py:5 in step, rank 1 waits in all_gather at h.py:6 in step"),
        ([rank(0, wait="all_reduce", call=call(1)), rank(1, wait="all_reduce", call=call(2))],
         ("rank 0 waits in all_reduce of [1] float32 at h.py:5 in step, "
          "rank 1 waits in all_reduce of [2] float32 at h.py:5 in step")),
        ([rank(at, wait="broadcast", call=from_rank(at)) for at in (0, 1)],
         "ranks 0-1 wait in broadcast of [4] float32 from themselves at h.py:5 in step"),
        ([rank(at, wait="broadcast", call=from_rank(at % 2)) for at in (0, 1, 2)],
         ("rank 1 waits in broadcast of [4] float32 from rank 1 at h.py:5, "
          "ranks 0, 2 wait in broadcast of [4] float32 from rank 0 at h.py:5 in step")),
        ([rank(0, wait="all_reduce", call=call(2)), rank(1, "h.py:7 in log", wait="broadcast", call=from_rank(0))],
         "rank 0 waits in all_reduce at h.py:5 in step, rank 1 waits in broadcast at h.py:7 in log"),
        ([rank(0, "train.py:9 in evaluate", wait="broadcast", call=from_rank(1)),
          rank(1, "a/train.py:13 in log", wait="broadcast", call=replace(from_rank(0), tensor="[30000000] float32"))],
         ("rank 0 waits in broadcast from rank 1 at train.py:9, "
          "rank 1 waits in broadcast of [30000000] float32 from rank 0 at a/train.py:13")),
        ([rank(at, wait="broadcast_object_list", call=from_rank(at)) for at in (0, 1)],
         "ranks 0-1 wait in broadcast_object_list from themselves at h.py:5 in step"),
        ([rank(0, wait="all_reduce", call=call(2)), rank(1, wait="all_reduce", call=call(2))],
         "ranks 0-1 wait in all_reduce at h.py:5 in step"),
        ([rank(0, loads=True), rank(1, loads=True)], "ranks 0-1 wait for their data loader at h.py:5 in step"),
        ([rank(0, ended=True, has_stack=False), rank(1, wait="barrier")],
         "rank 0 has ended, rank 1 waits in barrier at h.py:5 in step"),
        ([rank(0, frozen=True, has_stack=False), rank(1, has_stack=False)],
         "rank 0 is stopped (by SIGSTOP, or a debugger), rank 1 does not show where it is"),
        ([rank(number, f"h.py:{number} in f") for number in range(9)],
         "rank 0 sleeps at h.py:0 in f, rank 1 sleeps at h.py:1 in f, rank 2 sleeps at h.py:2 in f, and 6 more"),
        ([rank(0, busy=True, phase=Phase.EVALUATING), rank(1, busy=True, phase=Phase.EVALUATING)],
         "ranks 0-1 are busy at h.py:5 in step"),
        ([replace(rank(0), said="GET http://h:9/a/b refused; try 7"), rank(1, wait="barrier")],
         ("rank 0 sleeps at h.py:5 in step, rank 1 waits in barrier at h.py:5 in step; "
          "rank 0 says: GET http://h:9/… refused; try 7")),
        # What is short enough is said even after two places.
        ([replace(rank(0, "prepare.py:20", wait="barrier"), said="KeyError: 'text'"), rank(1, "prepare.py:19 in main")],
         ("rank 1 sleeps at prepare.py:19 in main, rank 0 waits in barrier at prepare.py:20; "
          "rank 0 says: KeyError: 'text'")),
        ([replace(rank(0), location=Location(line="h.py:9 in report", exits="thread"))],
         "rank 0 has ended its script, but not its thread at h.py:9 in report"),
        ([replace(rank(0), location=Location(line="h.py:9 in report", exits="exit handler"), failed="ValueError: x")],
         "rank 0 has failed (ValueError: x), but its exit handler goes on at h.py:9 in report"),
        ([replace(rank(one), location=Location(line="h.py:9", exits="thread"), failed="E: x") for one in (3, 4)],
         "ranks 3-4 have failed (E: x), but their thread goes on at h.py:9"),
        ([replace(rank(one), location=Location(line="h.py:9 in f", loads=True, worker="data.py:3 in add"))
          for one in (0, 1)],
         "ranks 0-1 wait for their data loader at h.py:9 in f, whose worker is at data.py:3 in add"),
        ([replace(rank(1), location=Location(line="h.py:9 in f", awaits="a process", worker="h.py:3 in work"))],
         "rank 1 waits for a process at h.py:9 in f, which is at h.py:3 in work"),
        ([replace(rank(one), location=Location(line="h.py:9 in report", awaits="a process")) for one in (0, 1)],
         "ranks 0-1 wait for a process at h.py:9 in report"),
        # Before the first step: one that waits for others is worth a word, ranks that work are not.
        ([rank(0, wait="init_process_group", **JOINING), rank(1, busy=True, **JOINING)],
         "rank 1 is busy at h.py:5 in step, rank 0 waits in init_process_group at h.py:5 in step"),
        ([rank(0, busy=True, **JOINING), rank(1, busy=True, **JOINING)], ""),
        ([rank(0, **JOINING), rank(1, **JOINING)], "ranks 0-1 sleep at h.py:5 in step"),
        ([replace(rank(0, **JOINING), stalled_seconds=29.0), rank(1, **JOINING)], ""),  # they may download
        ([replace(rank(0, **JOINING), stalled_seconds=29.0, said="retrying in 4 s"), rank(1, busy=True, **JOINING)],
         "rank 0 sleeps at h.py:5 in step, rank 1 is busy at h.py:5 in step; rank 0 says: retrying in 4 s"),
        ([rank(0, **JOINING), rank(1, busy=True, **JOINING)], ""),  # one may be on its way
        ([tries(0, said="Max retries exceeded"), tries(1)],
         "ranks 0-1 try to reach a server at h.py:5 in load; rank 0 says: Max retries exceeded"),
        ([tries(0, busy=True), tries(1, busy=True)], ""),  # they download
        ([rank(0, stepped=False), rank(1, stepped=False)], "ranks 0-1 sleep at h.py:5 in step"),
        ([rank(0, stepped=False, busy=True, wait="all_reduce")], ""),  # a loop of collectives, without an optimizer
        # What comes after training takes no steps.
        ([rank(0, phase=Phase.FINISHING), rank(1, phase=Phase.FINISHING)], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_where_ranks_are(statuses: list[RankStatus], expected: str) -> None:
    assert sentence(statuses) == expected


def test_the_sentence_is_bounded_and_names_nodes_that_have_ended() -> None:
    assert sentence([SLEEPS], left=[0]) == "node 0 has ended, rank 1 sleeps at h.py:5"
    assert sentence([SLEEPS], left=[0, 2, 3]).startswith("nodes 0, 2-3 have ended, ")
    many = [rank(number, f"{'x' * 200}.py:{number} in f") for number in range(2000)]
    assert len(sentence(many)) == LIMIT


class Round:
    """Two nodes of a round, each with one rank."""

    def __init__(self) -> None:
        self.watch = StandstillWatch()
        self.nodes = [Node(index=index, started_at=0.0) for index in range(2)]

    def quiet(self, *indices: int) -> None:
        for index in indices:
            self.watch.record_heartbeat(self.nodes[index], quiet=True)

    def looks(self, now: float) -> bool:
        return self.watch.should_look(self.nodes, now)

    def answer(self, now: float, *statuses: RankStatus) -> float | None:
        for one in statuses:
            self.watch.record(self.nodes[one.rank], [one])
        return self.watch.look(self.nodes, now)


def test_nodes_are_asked_once_all_are_quiet_and_ever_more_seldom() -> None:
    job = Round()
    job.quiet(0)
    assert not job.looks(20.0)
    job.quiet(1)
    assert job.looks(20.0)
    assert not job.looks(20.1)  # it has asked
    assert job.answer(20.2, rank(0, wait="barrier")) is None
    assert job.answer(20.3, SLEEPS) == 42.0
    assert job.watch.text.startswith("rank 1 sleeps at h.py:5, rank 0 waits")
    assert [job.looks(now) for now in (25.2, 25.3)] == [False, True]
    job.answer(25.3, rank(0), SLEEPS)
    assert [job.looks(now) for now in (35.2, 35.3)] == [False, True]
    job.answer(40.3, SLEEPS)  # node 0 does not answer in time
    assert job.watch.text == "rank 1 sleeps at h.py:5"


def test_until_there_is_something_to_tell_they_are_asked_often() -> None:
    job = Round()
    job.quiet(0, 1)
    now, busy = 20.0, [rank(number, busy=True, **JOINING) for number in range(2)]
    for pause in (5.0, 10.0, 10.0, 10.0):
        assert job.looks(now)
        job.answer(now, *busy)
        assert not job.looks(now + pause - 0.1)
        now += pause
    assert job.looks(now)
    job.answer(now, tries(0), tries(1))
    assert job.watch.text == "ranks 0-1 try to reach a server at h.py:5 in load"
    assert [job.looks(now + pause) for pause in (9.9, 10.0)] == [False, True]


def test_a_count_in_what_a_rank_says_is_nothing_new() -> None:
    job = Round()
    job.quiet(0)
    job.quiet(1)
    texts = []
    for now, said in ((20.0, "try 1 failed"), (30.0, "try 2 failed"), (50.0, "it is gone: error")):
        assert job.looks(now)
        job.answer(now, replace(SLEEPS, rank=0), replace(SLEEPS, said=said))
        texts.append(job.watch.text.rpartition("says: ")[2])
    assert texts == ["try 1 failed", "try 1 failed", "it is gone: error"]
    for now, place in ((100.0, "h.py:9"), (200.0, "h.py:12")):  # another line is another place
        assert job.looks(now)
        job.answer(now, rank(0, place), rank(1, place))
        assert job.watch.text == f"ranks 0-1 sleep at {place}"


def test_a_step_ends_it_and_a_node_that_is_done_is_not_asked() -> None:
    job = Round()
    job.quiet(0, 1)
    assert job.looks(20.0)
    job.answer(20.0, rank(0), SLEEPS)
    job.watch.record_heartbeat(job.nodes[0], quiet=False)
    assert job.watch.text == ""
    assert not job.looks(100.0)
    job.nodes[0].done = True
    assert job.looks(100.0)
    job.answer(100.0, SLEEPS)
    assert job.watch.text == "node 0 has ended, rank 1 sleeps at h.py:5"


def waits(number: int, where: str, **more: Any) -> RankStatus:
    return rank(number, wait=where, **(JOINING | more))


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        (GROUP, "although all ranks of this job are there: it is told of others"),
        (BUILD, "for a lock file that no rank of this job holds"),
        ("barrier", "although all have entered it: check the network and the devices"),
    ],
)
def test_ranks_that_all_wait_before_their_first_step_hang(where: str, cause: str) -> None:
    job = Round()
    judged = wait_together(job, [waits(0, where), waits(1, where)])
    assert judged is not None
    assert judged.text == f"hang: ranks 0-1 have been in {where} for 910 s, at h.py:5 in step, {cause}"
    both = wait_together(job, [waits(0, "barrier"), waits(1, BUILD)])
    assert both is not None
    assert both.rank == 1, "the one that holds up the other"


@pytest.mark.parametrize(
    "other", [{"busy": True}, {"stepped": True}, {"location": Location(line="h.py:7 in load")}], ids=str
)
def test_ranks_of_which_one_may_be_on_its_way_do_not_hang(other: dict[str, Any]) -> None:
    assert wait_together(Round(), [waits(0, GROUP), replace(waits(1, GROUP), **other)]) is None


APART = (
    [rank(0, wait="barrier", call=call(1)), rank(1, wait=BACKWARD)],
    [rank(0, wait="new_group"), rank(1, wait="new_group")],
    [rank(0, wait="barrier"), rank(1, wait="barrier")],
    [rank(0, wait="recv"), rank(1, wait="all_reduce")],
    [rank(at, wait="broadcast", call=from_rank(at)) for at in (0, 1)],
    [rank(at, wait="all_reduce", call=of_group(at)) for at in (0, 1)],
)
ON_ITS_WAY = (
    [rank(0, wait="barrier"), rank(1, wait=BACKWARD, busy=True)],
    [rank(0, wait="barrier"), rank(1)],
    [rank(0, wait="barrier"), rank(1, wait=BUILD)],
    [rank(0, wait="barrier"), rank(1, wait=BACKWARD, frozen=True)],
    [rank(0, wait="barrier"), rank(1, loads=True)],
    [rank(at, wait="broadcast", call=from_rank(1)) for at in (0, 1)],
    [rank(0, wait="all_reduce"), rank(1, wait="all_reduce")],  # it may take so long
    [rank(0, wait="all_reduce", call=of_group(1)), rank(1, wait="all_reduce")],  # likewise
    [rank(at, wait="all_reduce", call=of_group(1)) for at in (0, 1)],
    [rank(0, wait="send"), rank(1, wait="recv")],  # likewise
    [rank(0, wait="barrier"), replace(rank(1, wait=BACKWARD), said="retrying")],
)


@pytest.mark.parametrize(("statuses", "told"), [*((one, True) for one in APART), *((one, False) for one in ON_ITS_WAY)])
def test_ranks_that_wait_for_each_other_are_said_to_once_they_have_for_a_while(
    statuses: list[RankStatus],
    told: bool,  # noqa: FBT001
) -> None:
    job = Round()
    job.quiet(0, 1)
    for now in (20.0, 25.0, 27.9):
        job.answer(now, *statuses) if job.looks(now) else None
        assert not job.watch.text.endswith("; each waits for others"), now
    assert job.looks(40.0)
    job.answer(40.0, *statuses)
    assert job.watch.text.endswith("; each waits for others") is told
    assert len(job.watch.text) <= LIMIT


def test_ranks_that_wait_in_calls_of_different_groups_are_told_that() -> None:
    job = Round()
    job.quiet(0, 1)
    for now in (20.0, 50.0):
        assert job.looks(now)
        job.answer(now, *(rank(at, wait="all_reduce", call=of_group(at)) for at in (0, 1)))
    assert job.watch.text == (
        "ranks 0-1 wait in all_reduce at h.py:5 in step, of different groups; each waits for others"
    )


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [
        ("main", " in main", " in main"),
        ("train_one_epoch", "", " in train_one_epoch"),
        ("train_one_epoch_of_the_student", "", ""),
    ],
)
def test_a_long_sentence_keeps_the_lines_and_leaves_out_functions(function: str, first: str, second: str) -> None:
    job = Round()
    job.quiet(0, 1)
    statuses = [rank(0, f"h.py:43 in {function}", wait="all_gather"), rank(1, f"h.py:63 in {function}", wait=BACKWARD)]
    for now in (20.0, 50.0):
        assert job.looks(now)
        job.answer(now, *statuses)
    assert job.watch.text == (
        f"rank 0 waits in all_gather at h.py:43{first}, rank 1 waits in all_reduce of its backward pass at "
        f"h.py:63{second}; each waits for others"
    )
    assert len(job.watch.text) <= LIMIT


@pytest.mark.parametrize("wait", ["send", "recv"])
def test_ranks_that_all_send_or_all_receive_may_have_something_on_its_way_for_longer(wait: str) -> None:
    job = Round()
    job.quiet(0, 1)
    told = []
    for now in range(20, 120):
        if job.looks(now):
            job.answer(now, rank(0, wait=wait), rank(1, wait=wait))
            told.append((now, job.watch.text.endswith("; each waits for others")))
    assert [now for now, is_told in told if is_told]
    assert all(is_told is (now >= 20 + ONE_WAY_APART) for now, is_told in told)


def test_ranks_that_wait_for_each_other_are_looked_at_again_as_soon_as_it_may_be_told() -> None:
    job = Round()
    job.quiet(0, 1)
    looks = []
    for now in (20 + tenth / 10 for tenth in range(600)):
        if job.looks(now):
            job.answer(now, rank(0, wait="barrier"), rank(1, wait=BACKWARD))
            looks.append((now, "each waits" in job.watch.text))
    assert looks[:3] == [(20.0, False), (25.0, False), (28.0, True)]
    assert len(looks) <= 6, "not all the time"


def test_ranks_that_make_other_calls_each_time_do_not_wait_for_each_other() -> None:
    job = Round()
    job.quiet(0, 1)
    for number, now in enumerate((20.0, 40.0, 60.0, 110.0)):
        assert job.looks(now)
        job.answer(now, rank(0, wait="barrier", call=replace(call(1), number=number)), rank(1, wait="all_gather"))
        assert "each waits" not in job.watch.text


def test_waiting_is_counted_from_where_the_ranks_wait_now() -> None:
    job = Round()
    job.quiet(0, 1)
    for now, where in ((20.0, "barrier"), (WAITING_TIMEOUT, "all_reduce"), (WAITING_TIMEOUT + 900, "all_reduce")):
        assert job.looks(now)
        job.answer(now, waits(0, where), waits(1, where))
        assert job.watch.hang(now) is None
    assert job.watch.hang(WAITING_TIMEOUT + 901) is not None
    job.watch.reset()
    assert job.watch.hang(WAITING_TIMEOUT + 999) is None


def wait_together(job: Round, statuses: list[RankStatus]) -> Diagnosis | None:
    """The judgement of ranks that are seen like that for longer than they may."""
    job.watch.reset()
    job.quiet(0, 1)
    for now in (20.0, 30.0 + WAITING_TIMEOUT):
        assert job.looks(now)
        job.answer(now, *statuses)
    return job.watch.hang(30.0 + WAITING_TIMEOUT)
