"""Nodes at a real hub, each over its own connection."""

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

from kitjob import record, typed
from kittrain.agent.rendezvous import handshake, messages
from kittrain.agent.rendezvous.diagnosis import RankStatus
from kittrain.agent.rendezvous.handshake import Greeting, Introduction, Key, Proof
from kittrain.agent.rendezvous.hub_backend import HubBackend
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.hub_rendezvous import HubRendezvous
from kittrain.agent.rendezvous.interface import JobEnded, RoundOver
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.rendezvous.stacks import Location
from kittrain.agent.rendezvous.succession import Configuration
from kittrain.job.env import NodeEnv, node_env
from kittrain.outcome.termination import Ending
from kittrain.system import port
from kittrain.system.heartbeat import Phase
from kittrain.system.lines import ConnectionLost, LineStream
from kittrain.system.sample_orders import SampleOrder
from tests.trainer.nodes import free_port

SECRET = b"0123456789abcdef"
SETTINGS = RendezvousSettings(join_timeout=60, last_call_timeout=1)
FAST = RendezvousSettings(
    join_timeout=60, last_call_timeout=1, keep_alive_max_attempt=1
)  # a node without heartbeats is lost after six seconds


class Job:
    """A hub, and nodes as threads."""

    def __init__(self, nodes: str, settings: RendezvousSettings = SETTINGS) -> None:
        self._settings = settings
        self.node = node_env({"PET_NNODES": nodes, "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}"})
        self._pool = ThreadPoolExecutor(1000)  # one per node
        self._hub = ExitStack()
        self.start_hub()

    def start_hub(self) -> None:
        """Start the hub, or replace it by a new one."""
        self._hub.close()
        self._hub.enter_context(hub_process(self.node, self._settings, secret=SECRET))

    def close(self) -> None:
        self._hub.close()
        self._pool.shutdown()

    def backend(
        self, index: int, *, started_at: float = 0.0, secret: bytes | None = SECRET, **changed: str
    ) -> HubBackend:
        node: NodeEnv = replace(self.node, node_index=index, **changed)  # type: ignore[arg-type]
        return HubBackend(node, self._settings, started_at=started_at, secret=secret)

    def connect(self, *backends: HubBackend) -> list[HubRendezvous]:
        for backend in backends:
            backend.connect(deadline=time.monotonic() + 30)
        return [backend.handler("127.0.0.1") for backend in backends]

    def rounds(self, *nodes: HubRendezvous) -> list[RendezvousInfo]:
        """Have all nodes wait for a round at once."""
        return list(self._pool.map(HubRendezvous.next_rendezvous, nodes))


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    job = Job(*request.param) if isinstance(request.param, tuple) else Job(request.param)
    yield job
    job.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def has_hung(node: HubRendezvous) -> bool:
    return not node.num_nodes_waiting() and node.culprit is not None


def until_ended(node: HubRendezvous) -> None:
    """Poll as torch's agent does while its ranks run."""
    until(node.num_nodes_waiting)


two_nodes = pytest.mark.parametrize("job", ["2"], indirect=True)
elastic = pytest.mark.parametrize("job", ["1:2"], indirect=True)


@two_nodes
def test_nodes_of_a_round_get_ranks_in_node_order_one_master_and_one_store(job: Job) -> None:
    one, zero = job.rounds(*job.connect(job.backend(1), job.backend(0)))
    assert (zero.rank, one.rank, zero.world_size) == (0, 1, 2)
    assert zero.bootstrap_store_info
    assert one.bootstrap_store_info
    assert zero.bootstrap_store_info.master_addr == "127.0.0.1"
    assert zero.bootstrap_store_info.master_port == one.bootstrap_store_info.master_port
    one.store.set("of one", "1")
    zero.store.set("of zero", "0")
    assert one.store.multi_get(["of zero", "of one"]) == [b"0", b"1"]


@two_nodes
def test_a_lost_node_ends_the_round_and_its_requests(job: Job) -> None:
    survivor, lost = job.connect(job.backend(0), job.backend(1))
    info, _ = job.rounds(survivor, lost)
    lost.leave()
    with pytest.raises(RoundOver):
        info.store.get("never set")
    until_ended(survivor)
    assert survivor.lost
    (back,) = job.connect(job.backend(1))
    again, _ = job.rounds(survivor, back)
    assert not survivor.num_nodes_waiting()
    again.store.set("never set", "of the new round")
    assert again.store.get("never set") == b"of the new round"


@two_nodes
def test_a_round_that_ends_in_agreement_is_not_lost(job: Job) -> None:
    first, second = job.connect(job.backend(0), job.backend(1))
    job.rounds(first, second)
    first.end_round(lost=False)
    until_ended(second)
    assert not second.lost


@elastic
def test_a_node_that_joins_later_ends_the_round_in_agreement(job: Job) -> None:
    (first,) = job.connect(job.backend(0))
    assert job.rounds(first)[0].world_size == 1
    (second,) = job.connect(job.backend(1))
    later = job._pool.submit(second.next_rendezvous)
    until_ended(first)
    assert not first.lost
    assert first.next_rendezvous().world_size == 2
    assert later.result().rank == 1


@two_nodes
def test_a_new_hub_continues_after_the_lost_one(job: Job) -> None:
    backends = [job.backend(0), job.backend(1)]
    first, second = job.connect(*backends)
    job.rounds(first, second)
    job.start_hub()
    with pytest.raises(RendezvousConnectionError, match="node 0 is lost"):
        until_ended(second)
    assert second.lost
    job.rounds(*job.connect(*backends))
    assert backends[0]._last.known[0].number == 2


@two_nodes
def test_a_round_succeeds_once_all_are_done_even_if_one_has_left(job: Job) -> None:
    first, second = job.connect(job.backend(0), job.backend(1))
    job.rounds(first, second)
    assert not first.done(timeout=0.2)
    first.leave()
    assert second.done(timeout=30.0)
    assert not second.num_nodes_waiting()


@two_nodes
def test_a_node_lost_while_it_drains_ends_the_round_of_finished_nodes(job: Job) -> None:
    first, second = job.connect(job.backend(0), job.backend(1))
    job.rounds(first, second)
    first.drain()
    first.leave()
    with pytest.raises(RoundOver, match=r"node 0, pod .* is lost"):
        second.done(timeout=30.0)


@pytest.mark.parametrize("job", ["2:3"], indirect=True)
def test_a_node_that_waits_when_the_job_finishes_is_done_too(job: Job) -> None:
    first, second = job.connect(*map(job.backend, range(2)))
    job.rounds(first, second)
    assert not first.done(timeout=0.2)
    (late,) = job.connect(job.backend(2))
    waiting = job._pool.submit(late.next_rendezvous)
    assert second.done(timeout=30.0)
    with pytest.raises(JobEnded, match="finished already"):
        waiting.result()
    (latest,) = job.connect(job.backend(0, started_at=1.0))
    with pytest.raises(JobEnded, match="finished already"):
        latest.next_rendezvous()


@two_nodes
@pytest.mark.parametrize("successors_clock", [1.0, -86400.0])
def test_a_replaced_agent_is_rejected_and_its_successor_is_not(job: Job, successors_clock: float) -> None:
    replaced = job.backend(1)
    old, other = job.connect(replaced, job.backend(0))
    job.rounds(old, other)
    (newer,) = job.connect(job.backend(1, started_at=successors_clock))
    assert job.rounds(newer, other)[0].rank == 1
    (late,) = job.connect(replaced)
    with pytest.raises(RendezvousConnectionError, match="newer agent"):
        late.next_rendezvous()


@two_nodes
def test_a_round_of_stalled_ranks_ends_with_a_diagnosis_of_their_stacks(job: Job) -> None:
    first, second = job.connect(job.backend(0, pod="run-0"), job.backend(1, pod="run-1"))
    job.rounds(first, second)
    first.heartbeat(stalled=True, frozen=False, progress={})
    second.heartbeat(stalled=True, frozen=False, progress={})
    until(lambda: not first.num_nodes_waiting() and first.stacks_requested)
    until(lambda: not second.num_nodes_waiting() and second.stacks_requested)
    stuck = partial(RankStatus, step=4, stalled_seconds=31.0, has_stack=True, frozen=False)
    first.report_stacks([stuck(rank=0, phase=Phase.DATA, location=Location(line="data.py:3 in read"))])
    second.report_stacks(
        [stuck(rank=1, phase=Phase.BACKWARD, location=Location(wait="all_reduce", line="train.py:9 in train"))]
    )
    for node in (first, second):
        until(partial(has_hung, node))
        assert (node.culprit, node.lost) == ((0, 4), True)
        assert node.reason.startswith("hang: rank 0 (node 0, pod run-0) has been in data loading of step 5 for 31 s")
    job.rounds(first, second)
    assert (first.culprit, first.reason, first.stacks_requested) == (None, "", False)


@pytest.mark.parametrize("job", [("2", FAST)], indirect=True)
def test_a_connected_node_without_heartbeats_is_lost(job: Job) -> None:
    first, second = job.connect(job.backend(0), job.backend(1))
    job.rounds(first, second)
    until_ended(first)
    assert first.lost
    assert first.reason.startswith("node 1, pod local-0 is not responding")
    with pytest.raises(RendezvousConnectionError):
        until(second.num_nodes_waiting)


@two_nodes
def test_a_permanent_failure_reaches_all_nodes_and_those_that_connect_later(job: Job) -> None:
    waiting, failing = job.connect(job.backend(0), job.backend(1))
    ended = job._pool.submit(waiting.next_rendezvous)
    failing.fail(Ending(outcome="fatal", reason="no GPU", node=1), timeout=0.0)
    failing.leave()
    with pytest.raises(JobEnded, match="no GPU"):
        ended.result()
    (late,) = job.connect(job.backend(0, started_at=1.0))
    with pytest.raises(JobEnded):
        late.next_rendezvous()


@two_nodes
def test_node_0_stays_until_all_nodes_know_that_it_fails(job: Job) -> None:
    (failing,) = job.connect(job.backend(0))
    failed = job._pool.submit(failing.fail, Ending(outcome="fatal", reason="no GPU", node=0), timeout=60.0)
    (late,) = job.connect(job.backend(1))
    with pytest.raises(JobEnded):
        late.next_rendezvous()
    assert not failed.done()
    late.leave()
    failed.result(30)


@two_nodes
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"run_id": "another"}, "another secret, or another run"),
        ({"secret": b"fedcba9876543210"}, "another secret, or another run"),
        ({"secret": None}, "this node has none"),
    ],
)
def test_a_node_that_does_not_know_the_runs_secret_is_rejected(job: Job, changed: dict[str, Any], problem: str) -> None:
    class Waiting(Exception):
        pass

    def waiting(why: str) -> None:  # the hub of a previous run may still be up
        raise Waiting(why)

    with pytest.raises(Waiting, match=problem):
        job.backend(1, **changed).connect(deadline=time.monotonic() + 60, waiting=waiting)
    with pytest.raises(RendezvousTimeoutError, match=problem):
        job.backend(1, **changed).connect(deadline=0)


@two_nodes
def test_a_node_outside_the_job_is_rejected(job: Job) -> None:
    (extra,) = job.connect(job.backend(2))
    with pytest.raises(RendezvousConnectionError, match="node 2 is not part of this job, whose last node is 1"):
        extra.next_rendezvous()


def test_a_round_may_have_more_nodes_than_the_soft_limit_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(path.name) for path in Path("/dev/fd").iterdir()) + 20  # it limits numbers, not their count
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        job = Job(str(few))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with closing(job):
        rounds = job.rounds(*job.connect(*map(job.backend, range(few))))
    assert [one.rank for one in rounds] == list(range(few))


def test_a_node_sends_a_new_hub_what_it_knows_of_the_last_round() -> None:
    """With a hub that is implemented here, to see what it receives."""
    key = Key(SECRET, "local")
    with port.listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as threads:
        node = node_env({"PET_NNODES": "2:4", "PET_RDZV_ENDPOINT": f"127.0.0.1:{listener.getsockname()[1]}"})
        backend = HubBackend(node, SETTINGS, started_at=0.0, secret=SECRET)

        def take_part() -> RendezvousInfo:
            backend.connect(deadline=time.monotonic() + 60)
            return backend.handler("127.0.0.1").next_rendezvous()

        sent = []
        for _ in range(2):
            waiting = threads.submit(take_part)
            lines = LineStream(listener.accept()[0])
            answer, session = key.answer(typed.load(Greeting, lines.read() or b""), Introduction())
            lines.write(handshake.line(answer))
            session.verify_proof(typed.load(Proof, lines.read() or b"").mac)
            _, joined = (messages.load(messages.FROM_NODES, session.verify(lines.read() or b"")) for _ in range(2))
            assert isinstance(joined, messages.Join)
            sent.append((joined.known, joined.place))
            known = [Configuration(number=7, members="0-2"), Configuration(number=6, members="0-3")]
            lines.write(session.sign(messages.dump(messages.Succession(known=known, successors=[]))))
            formed = messages.Round(number=7, rank=0, size=3, address="127.0.0.1", port=joined.port)
            lines.write(session.sign(messages.dump(formed)))
            assert waiting.result(60).world_size == 3
            lines.close()
    assert sent == [([], None), (known, 0)]


def test_a_hub_without_the_secret_receives_nothing() -> None:
    with port.listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as threads:
        node = node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{listener.getsockname()[1]}"})
        backend = HubBackend(node, SETTINGS, started_at=0.0, secret=SECRET)
        connected = threads.submit(backend.connect, deadline=0)
        lines = LineStream(listener.accept()[0])
        answer, _ = Key(b"fedcba9876543210", "local").answer(typed.load(Greeting, lines.read() or b""), Introduction())
        lines.write(handshake.line(answer))
        with pytest.raises(RendezvousTimeoutError, match="does not know this run's secret"):
            connected.result(60)
        with pytest.raises(ConnectionLost):
            lines.read()
        lines.close()


@pytest.mark.parametrize("job", ["1"], indirect=True)
def test_a_spare_waits_without_a_limit_and_takes_the_place_of_a_lost_node(job: Job) -> None:
    job.node = replace(job.node, job=record.replace(job.node.job, spares=1))
    job._settings = replace(SETTINGS, join_timeout=2)
    job.start_hub()
    zero, one = job.connect(job.backend(0), job.backend(1))
    job.rounds(zero)
    told: list[str] = []
    one.standing_by = lambda: told.append("stands by")
    later = job._pool.submit(one.next_rendezvous)
    until(lambda: not zero.num_nodes_waiting() and list(zero.spares) == [1])
    time.sleep(3.0)  # longer than a node may wait for the others
    assert (told, later.done()) == (["stands by"], False)
    zero.drain()
    zero.leave()
    assert later.result(60).world_size == 1


@two_nodes
def test_the_hub_of_a_drained_node_hands_over_and_the_next_round_outlives_it(job: Job) -> None:
    job.node = replace(job.node, job=record.replace(job.node.job, spares=1))
    job.start_hub()
    zero, one, two = job.connect(job.backend(0), job.backend(1), job.backend(2))
    later = [job._pool.submit(two.next_rendezvous)]
    job.rounds(zero, one)
    until(lambda: not zero.num_nodes_waiting() and list(zero.spares) == [2])
    assert zero.hosts
    zero.drain()
    zero.end_round(lost=False)
    until_ended(one)
    later.append(job._pool.submit(one.next_rendezvous))
    zero.hand_over(timeout=60.0)
    zero.leave()
    job._hub.close()
    of_two, of_one = [waiting.result(60) for waiting in later]
    assert [of_two.rank, of_one.rank, of_one.world_size] == [0, 1, 2]
    of_two.store.set("still", "there")
    assert of_one.store.get("still") == b"there"
    assert (one.hosts, two.hosts, one.num_nodes_waiting(), one.lost) == (True, False, 0, False)


@pytest.mark.parametrize("job", ["1"], indirect=True)
def test_a_spare_that_the_others_meet_at_ends_their_round_in_agreement_and_hands_over(job: Job) -> None:
    job.node = replace(job.node, job=record.replace(job.node.job, spares=1))
    job.start_hub()
    zero, one = job.connect(job.backend(0), job.backend(1))
    job.rounds(zero)
    waiting = job._pool.submit(one.next_rendezvous)
    until(lambda: not zero.num_nodes_waiting() and list(zero.spares) == [1])
    zero.drain()
    zero.leave()
    store = waiting.result(60).store
    store.set("told", "of the round")
    assert store.get("told") == b"of the round"
    (zero,) = job.connect(job.backend(0, started_at=1.0))
    zero._join()
    until(lambda: not one.num_nodes_waiting() and list(one.spares) == [0])
    leaving = job._pool.submit(zero.hand_over, timeout=60.0)
    until_ended(one)
    assert not one.lost
    again = job._pool.submit(one.next_rendezvous)
    leaving.result(60)
    job._hub.close()
    assert again.result(60).world_size == 1
    assert (one.hosts, one.num_nodes_waiting()) == (True, 0)


@two_nodes
def test_a_drained_node_that_nobody_waits_for_leaves_at_once(job: Job) -> None:
    zero, one = job.connect(job.backend(0), job.backend(1))
    job.rounds(zero, one)
    one.drain()
    zero.drain()
    zero.end_round(lost=False)
    zero.hand_over(timeout=1e6)
    assert not one.num_nodes_waiting(), "its ranks end by themselves"


@two_nodes
def test_who_is_drained_ends_the_round_also_if_another_node_says_so_first(job: Job) -> None:
    zero, one = job.connect(job.backend(0), job.backend(1))
    job.rounds(zero, one)
    one.drain()
    until(lambda: not one.num_nodes_waiting())
    zero.end_round(lost=False)
    until_ended(zero)
    assert zero.reason.startswith("the ranks of node 1, ")
    assert not zero.lost
    assert not one.num_nodes_waiting(), "its ranks end by themselves"


@two_nodes
def test_the_first_node_hears_when_a_spare_is_gone(job: Job) -> None:
    job.node = replace(job.node, job=record.replace(job.node.job, spares=1))
    job.start_hub()
    zero, one, two = job.connect(job.backend(0), job.backend(1), job.backend(2))
    job._pool.submit(two.next_rendezvous)
    job.rounds(zero, one)
    until(lambda: not zero.num_nodes_waiting() and list(zero.spares) == [2])
    two.leave()
    until(lambda: not zero.num_nodes_waiting() and not zero.spares)


@two_nodes
def test_all_nodes_hear_that_each_has_saved_a_checkpoint_of_its_own(job: Job) -> None:
    zero, one = job.connect(job.backend(0), job.backend(1))
    job.rounds(zero, one)
    zero.report_save()
    zero.report_save()
    assert not zero.num_nodes_waiting()
    assert not zero.all_saved
    one.report_save()
    until(lambda: not (zero.num_nodes_waiting() or one.num_nodes_waiting()) and zero.all_saved and one.all_saved)


@two_nodes
def test_the_first_node_hears_of_orders_that_differ_once_all_have_told_theirs(job: Job) -> None:
    one, zero = job.connect(job.backend(1), job.backend(0))
    job.rounds(one, zero)
    order = SampleOrder(rank=0, parts=2, part=0, samples=9, seed=0, shuffle=True)
    zero.report_orders([order])
    one.report_orders([replace(order, rank=1, part=1, seed=1)])
    until(lambda: not zero.num_nodes_waiting() and [each.seed for each in zero.orders] == [0, 1])
    zero.end_round(lost=False)
    until_ended(one)
    job.rounds(one, zero)
    assert zero.orders == (), "those of the new round are not known"
    zero.report_orders([order])
    one.report_orders([replace(order, rank=1, part=1)])
    zero.report_alone(1)
    one.report_alone(1)
    until(lambda: not zero.num_nodes_waiting() and zero.training_alone == 2)
    assert zero.orders == (), "nothing differs"
