"""Nodes that meet at a real hub, each over a connection of its own."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousInfo, RendezvousTimeoutError

from kittrain.env import NodeEnv, node_env
from kittrain.outcome.termination import Ending
from kittrain.rendezvous import handshake, messages
from kittrain.rendezvous.backend import JobEnded, RoundOver
from kittrain.rendezvous.diagnosis import Account
from kittrain.rendezvous.handshake import Greeting, Key, Proof
from kittrain.rendezvous.hub_backend import HubBackend
from kittrain.rendezvous.hub_process import hosted
from kittrain.rendezvous.hub_rendezvous import HubRendezvous
from kittrain.rendezvous.settings import Knobs
from kittrain.rendezvous.stacks import Place
from kittrain.system import port, typed
from kittrain.system.heartbeat import Phase
from kittrain.system.lines import ConnectionLost, Lines
from tests.trainer.nodes import free_port

SECRET = b"0123456789abcdef"
KNOBS = Knobs(join_timeout=60, last_call_timeout=1)
HASTY = Knobs(join_timeout=60, last_call_timeout=1, keep_alive_max_attempt=1)  # silence is noticed after six seconds


class Meeting:
    """A hub, and nodes that are threads."""

    def __init__(self, nodes: str, knobs: Knobs = KNOBS) -> None:
        self._knobs = knobs
        self.node = node_env({"PET_NNODES": nodes, "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}"})
        self._pool = ThreadPoolExecutor(1000)  # each node blocks one
        self._hub = ExitStack()
        self.host()

    def host(self) -> None:
        """Start the hub, anew if there was one."""
        self._hub.close()
        self._hub.enter_context(hosted(self.node, self._knobs, secret=SECRET))

    def close(self) -> None:
        self._hub.close()
        self._pool.shutdown()

    def backend(self, index: int, *, born: float = 0.0, secret: bytes | None = SECRET, **changed: str) -> HubBackend:
        node: NodeEnv = replace(self.node, node_index=index, **changed)  # type: ignore[arg-type]
        return HubBackend(node, self._knobs, born=born, secret=secret)

    def enter(self, *backends: HubBackend) -> list[HubRendezvous]:
        for backend in backends:
            backend.connect(deadline=time.monotonic() + 30)
        return [backend.handler("127.0.0.1") for backend in backends]

    def rounds(self, *nodes: HubRendezvous) -> list[RendezvousInfo]:
        """Have nodes wait for a round, all at once."""
        return list(self._pool.map(HubRendezvous.next_rendezvous, nodes))


@pytest.fixture
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    meeting = Meeting(*request.param) if isinstance(request.param, tuple) else Meeting(request.param)
    yield meeting
    meeting.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never comes true"
        time.sleep(0.01)


def hung(node: HubRendezvous) -> bool:
    return not node.num_nodes_waiting() and node.culprit is not None


def until_over(node: HubRendezvous) -> None:
    """What torch's agent does while its ranks run."""
    until(node.num_nodes_waiting)


two_nodes = pytest.mark.parametrize("meeting", ["2"], indirect=True)
elastic = pytest.mark.parametrize("meeting", ["1:2"], indirect=True)


@two_nodes
def test_nodes_of_a_round_have_ranks_in_the_pods_order_one_master_and_one_store(meeting: Meeting) -> None:
    one, zero = meeting.rounds(*meeting.enter(meeting.backend(1), meeting.backend(0)))
    assert (zero.rank, one.rank, zero.world_size) == (0, 1, 2)
    assert zero.bootstrap_store_info
    assert one.bootstrap_store_info
    assert zero.bootstrap_store_info.master_addr == "127.0.0.1"
    assert zero.bootstrap_store_info.master_port == one.bootstrap_store_info.master_port
    one.store.set("of one", "1")
    zero.store.set("of zero", "0")
    assert one.store.multi_get(["of zero", "of one"]) == [b"0", b"1"]


@two_nodes
def test_a_lost_node_ends_the_round_and_what_is_asked_in_it(meeting: Meeting) -> None:
    survivor, lost = meeting.enter(meeting.backend(0), meeting.backend(1))
    info, _ = meeting.rounds(survivor, lost)
    lost.leave()
    with pytest.raises(RoundOver):
        info.store.get("never set")
    until_over(survivor)
    assert survivor.lost
    (back,) = meeting.enter(meeting.backend(1))
    again, _ = meeting.rounds(survivor, back)
    assert not survivor.num_nodes_waiting()
    again.store.set("never set", "unknown to the new round")
    assert again.store.get("never set") == b"unknown to the new round"


@two_nodes
def test_a_round_that_all_ranks_leave_by_agreement_is_over_but_not_lost(meeting: Meeting) -> None:
    first, second = meeting.enter(meeting.backend(0), meeting.backend(1))
    meeting.rounds(first, second)
    first.end(lost=False)
    until_over(second)
    assert not second.lost


@elastic
def test_a_node_that_comes_later_ends_the_round_by_agreement(meeting: Meeting) -> None:
    (first,) = meeting.enter(meeting.backend(0))
    assert meeting.rounds(first)[0].world_size == 1
    (second,) = meeting.enter(meeting.backend(1))
    later = meeting._pool.submit(second.next_rendezvous)
    until_over(first)
    assert not first.lost
    assert first.next_rendezvous().world_size == 2
    assert later.result().rank == 1


@two_nodes
def test_a_new_hub_goes_on_where_the_lost_one_was(meeting: Meeting) -> None:
    backends = [meeting.backend(0), meeting.backend(1)]
    first, second = meeting.enter(*backends)
    meeting.rounds(first, second)
    meeting.host()
    with pytest.raises(RendezvousConnectionError, match="node 0 is gone"):
        until_over(second)
    assert second.lost
    meeting.rounds(*meeting.enter(*backends))
    assert backends[0]._past.round == 2


@two_nodes
def test_a_round_ends_well_when_all_are_done_and_nobody_is_lost_by_leaving_then(meeting: Meeting) -> None:
    first, second = meeting.enter(meeting.backend(0), meeting.backend(1))
    meeting.rounds(first, second)
    assert not first.done(patience=0.2)
    first.leave()
    assert second.done(patience=30.0)
    assert not second.num_nodes_waiting()


@two_nodes
def test_a_node_that_is_lost_as_it_drains_has_not_finished_and_nor_have_the_others(meeting: Meeting) -> None:
    first, second = meeting.enter(meeting.backend(0), meeting.backend(1))
    meeting.rounds(first, second)
    first.drain()
    first.leave()
    with pytest.raises(RoundOver, match=r"node 0, pod .* is lost"):
        second.done(patience=30.0)


@pytest.mark.parametrize("meeting", ["2:3"], indirect=True)
def test_a_node_that_waits_while_the_job_finishes_without_it_is_done_too(meeting: Meeting) -> None:
    first, second = meeting.enter(*map(meeting.backend, range(2)))
    meeting.rounds(first, second)
    assert not first.done(patience=0.2)
    (late,) = meeting.enter(meeting.backend(2))
    waiting = meeting._pool.submit(late.next_rendezvous)
    assert second.done(patience=30.0)
    with pytest.raises(JobEnded, match="finished already"):
        waiting.result()
    (latest,) = meeting.enter(meeting.backend(0, born=1.0))
    with pytest.raises(JobEnded, match="finished already"):
        latest.next_rendezvous()


@two_nodes
def test_an_agent_that_was_replaced_is_refused_and_its_successor_is_not(meeting: Meeting) -> None:
    old, other = meeting.enter(meeting.backend(1), meeting.backend(0))
    meeting.rounds(old, other)
    (young,) = meeting.enter(meeting.backend(1, born=1.0))
    assert meeting.rounds(young, other)[0].rank == 1
    (late,) = meeting.enter(meeting.backend(1))
    with pytest.raises(RendezvousConnectionError, match="younger agent"):
        late.next_rendezvous()


@two_nodes
def test_a_round_whose_ranks_all_stand_still_is_over_for_the_reason_that_their_places_give(meeting: Meeting) -> None:
    first, second = meeting.enter(meeting.backend(0, pod="run-0"), meeting.backend(1, pod="run-1"))
    meeting.rounds(first, second)
    first.pulse(stalled=True, frozen=False, tempo={})
    second.pulse(stalled=True, frozen=False, tempo={})
    until(lambda: not first.num_nodes_waiting() and first.asked)
    until(lambda: not second.num_nodes_waiting() and second.asked)
    stuck = partial(Account, step=4, still=31.0, answers=True, frozen=False)
    first.account([stuck(rank=0, phase=Phase.DATA, place=Place(line="data.py:3 in read"))])
    second.account([stuck(rank=1, phase=Phase.BACKWARD, place=Place(wait="all_reduce", line="train.py:9 in train"))])
    for node in (first, second):
        until(partial(hung, node))
        assert (node.culprit, node.lost) == ((0, 4), True)
        assert node.reason.startswith("hang: rank 0 (node 0, pod run-0) has been in data loading of step 5 for 31 s")
    meeting.rounds(first, second)
    assert (first.culprit, first.reason, first.asked) == (None, "", False)


@pytest.mark.parametrize("meeting", [("2", HASTY)], indirect=True)
def test_a_node_that_is_connected_and_says_nothing_is_lost(meeting: Meeting) -> None:
    first, second = meeting.enter(meeting.backend(0), meeting.backend(1))
    meeting.rounds(first, second)
    until_over(first)
    assert first.lost
    assert first.reason.startswith("node 1, pod local-0 says nothing any more")
    with pytest.raises(RendezvousConnectionError):
        until(second.num_nodes_waiting)


@two_nodes
def test_who_fails_for_good_is_heard_by_all_and_by_those_that_come_later(meeting: Meeting) -> None:
    waiting, failing = meeting.enter(meeting.backend(0), meeting.backend(1))
    ended = meeting._pool.submit(waiting.next_rendezvous)
    failing.fail(Ending(outcome="fatal", reason="no GPU", node=1), patience=0.0)
    failing.leave()
    with pytest.raises(JobEnded, match="no GPU"):
        ended.result()
    (late,) = meeting.enter(meeting.backend(0, born=1.0))
    with pytest.raises(JobEnded):
        late.next_rendezvous()


@two_nodes
def test_node_0_stays_until_all_have_heard_that_it_fails(meeting: Meeting) -> None:
    (failing,) = meeting.enter(meeting.backend(0))
    told = meeting._pool.submit(failing.fail, Ending(outcome="fatal", reason="no GPU", node=0), patience=60.0)
    (late,) = meeting.enter(meeting.backend(1))
    with pytest.raises(JobEnded):
        late.next_rendezvous()
    assert not told.done()
    late.leave()
    told.result(30)


@two_nodes
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"run_id": "another"}, "another secret, or another run"),
        ({"secret": b"fedcba9876543210"}, "another secret, or another run"),
        ({"secret": None}, "this node has none"),
    ],
)
def test_a_node_that_does_not_know_the_runs_secret_is_not_let_in(
    meeting: Meeting, changed: dict[str, Any], problem: str
) -> None:
    class Waits(Exception):
        pass

    def waits(why: str) -> None:  # a hub of the run before may be there for some moments more
        raise Waits(why)

    with pytest.raises(Waits, match=problem):
        meeting.backend(1, **changed).connect(deadline=time.monotonic() + 60, waiting=waits)
    with pytest.raises(RendezvousTimeoutError, match=problem):
        meeting.backend(1, **changed).connect(deadline=0)


@two_nodes
def test_a_node_that_the_job_does_not_have_is_refused(meeting: Meeting) -> None:
    (stranger,) = meeting.enter(meeting.backend(2))
    with pytest.raises(RendezvousConnectionError, match="node 2 is none of this job's, whose last one is 1"):
        stranger.next_rendezvous()


def test_a_round_may_have_more_nodes_than_a_process_may_open_files_at_first() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(list(Path("/dev/fd").iterdir())) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        meeting = Meeting(str(few))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with closing(meeting):
        rounds = meeting.rounds(*meeting.enter(*map(meeting.backend, range(few))))
    assert [one.rank for one in rounds] == list(range(few))


def test_a_new_hub_is_told_which_round_there_was_and_of_how_many() -> None:
    """A hub that is written out here, for what only it hears."""
    key = Key(SECRET, "local")
    with port.listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as threads:
        node = node_env({"PET_NNODES": "2:4", "PET_RDZV_ENDPOINT": f"127.0.0.1:{listener.getsockname()[1]}"})
        backend = HubBackend(node, KNOBS, born=0.0, secret=SECRET)

        def live() -> RendezvousInfo:
            backend.connect(deadline=time.monotonic() + 60)
            return backend.handler("127.0.0.1").next_rendezvous()

        told = []
        for _ in range(2):
            waiting = threads.submit(live)
            lines = Lines(listener.accept()[0])
            answer, session = key.answer(typed.load(Greeting, lines.read() or b""))
            lines.write(handshake.line(answer))
            session.verify(typed.load(Proof, lines.read() or b"").mac)
            _, joined = (messages.load(messages.NODES, session.open(lines.read() or b"")) for _ in range(2))
            assert isinstance(joined, messages.Join)
            told.append((joined.round, joined.size))
            seat = messages.Round(number=7, rank=0, size=3, address="127.0.0.1", port=joined.port)
            lines.write(session.seal(messages.dump(seat)))
            assert waiting.result(60).world_size == 3
            lines.close()
    assert told == [(0, 0), (7, 3)]


def test_who_has_taken_node_0s_place_and_does_not_know_the_secret_is_told_nothing() -> None:
    with port.listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as threads:
        node = node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{listener.getsockname()[1]}"})
        backend = HubBackend(node, KNOBS, born=0.0, secret=SECRET)
        connected = threads.submit(backend.connect, deadline=0)
        lines = Lines(listener.accept()[0])
        answer, _ = Key(b"fedcba9876543210", "local").answer(typed.load(Greeting, lines.read() or b""))
        lines.write(handshake.line(answer))
        with pytest.raises(RendezvousTimeoutError, match="does not know the secret of this run"):
            connected.result(60)
        with pytest.raises(ConnectionLost):
            lines.read()
        lines.close()
