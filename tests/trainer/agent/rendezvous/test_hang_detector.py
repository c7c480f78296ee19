"""When a connected node counts as lost, and when a round hangs."""

from __future__ import annotations

from kittrain.agent.rendezvous.diagnosis import RankStatus
from kittrain.agent.rendezvous.hang_detector import HangDetector
from kittrain.agent.rendezvous.membership import Node
from kittrain.agent.rendezvous.stacks import Location
from kittrain.system.heartbeat import Phase


class Round:
    """Two nodes of a round that was formed at second 0."""

    def __init__(self) -> None:
        self.detector = HangDetector(heartbeat_timeout=20.0, stop_timeout=60.0)
        self.nodes = [Node(index=index, started_at=0.0, in_last_round=True) for index in range(2)]
        for node in self.nodes:
            self.detector.record_message(node, 0.0)

    def silent(self, now: float, *, ended: bool = False) -> list[int]:
        for node in self.nodes:
            node.active = not ended
        return [node.index for node in self.detector.silent_nodes(self.nodes, now)]

    def stall(self, *indices: int) -> None:
        for index in indices:
            self.detector.record_heartbeat(self.nodes[index], stalled=True, frozen=False)

    def recover(self, index: int) -> None:
        self.detector.record_heartbeat(self.nodes[index], stalled=False, frozen=False)

    def requests_stacks(self, now: float = 30.0) -> bool:
        return self.detector.should_request_stacks(self.nodes, now)

    def report_stacks(self, index: int, **more: bool) -> None:
        location = Location(line="train.py:1 in loss")
        facts = {"has_stack": True, "frozen": False} | more
        status = RankStatus(
            rank=index, step=1, phase=Phase.DATA, stalled_seconds=30.0, location=location, **facts  # type: ignore[arg-type]
        )  # fmt: skip
        self.detector.record_stacks(self.nodes[index], [status])

    def requests_stacks_of_working_ranks(self, now: float) -> bool:
        """Whether stacks are requested; if so, one rank turns out to be busy."""
        if not self.requests_stacks(now):
            return False
        self.report_stacks(0)
        self.report_stacks(1, busy=True, exempt=True)
        assert self.detector.diagnosis(self.nodes, now) is None
        return True


def test_a_node_that_has_waited_for_the_round_is_not_silent_when_that_begins() -> None:
    job = Round()
    job.detector.begin(job.nodes, 1000.0)
    assert job.silent(1020.0) == []
    assert job.silent(1020.1) == [0, 1]


def test_a_node_with_running_ranks_is_lost_without_heartbeats() -> None:
    job = Round()
    job.detector.record_message(job.nodes[0], 19.0)
    assert job.silent(20.0) == []
    assert job.silent(20.1) == [1]


def test_a_node_that_stops_its_ranks_gets_the_stop_timeout_in_addition() -> None:
    assert Round().silent(79.9, ended=True) == []
    assert Round().silent(80.1, ended=True) == [0, 1]


def test_a_node_that_waits_for_a_round_needs_no_heartbeat() -> None:
    job = Round()
    job.nodes[0].in_last_round = False
    job.nodes[1].ready = True
    assert job.silent(1000.0, ended=True) == []


def test_stacks_are_requested_once_all_nodes_are_stalled() -> None:
    job = Round()
    job.stall(0)
    assert not job.requests_stacks()
    job.stall(1)
    assert job.requests_stacks()
    assert not job.requests_stacks()


def test_one_frozen_rank_is_enough_until_it_moves_again() -> None:
    job = Round()
    job.detector.record_heartbeat(job.nodes[0], stalled=False, frozen=True)
    assert job.requests_stacks()
    job.report_stacks(0)
    job.report_stacks(1)
    job.recover(1)
    assert job.detector.diagnosis(job.nodes, 30.0)
    job.recover(0)
    assert not job.requests_stacks()
    assert job.detector.diagnosis(job.nodes, 30.0) is None


def test_nodes_that_are_done_do_not_count() -> None:
    job = Round()
    job.nodes[0].done = True
    job.stall(1)
    assert job.requests_stacks()
    job.nodes[1].done = True
    job.detector.reset()
    assert not job.requests_stacks()


def test_a_diagnosis_needs_all_stacks_or_a_timeout() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.requests_stacks()
    job.report_stacks(0)
    assert job.detector.diagnosis(job.nodes, 34.9) is None
    late = job.detector.diagnosis(job.nodes, 35.0)
    assert late
    assert late.text.startswith("hang: rank 0 ")
    job.report_stacks(1)
    complete = job.detector.diagnosis(job.nodes, 30.0)
    assert complete
    assert complete.text.startswith("hang: ranks 0-1 ")


def test_a_node_whose_ranks_move_again_clears_the_suspicion() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.requests_stacks()
    job.recover(1)
    job.report_stacks(0)
    assert job.detector.diagnosis(job.nodes, 1000.0) is None
    assert not job.requests_stacks()
    job.stall(1)
    assert job.requests_stacks()


def test_a_hang_without_any_stack_report_is_still_a_hang() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.requests_stacks()
    diagnosis = job.detector.diagnosis(job.nodes, 40.0)
    assert diagnosis
    assert diagnosis.text == "hang: no rank moves, and no agent has reported why"


def test_stacks_of_working_ranks_are_requested_again_after_growing_delays() -> None:
    job = Round()
    job.stall(0, 1)
    requested = [second for second in range(30, 600) if job.requests_stacks_of_working_ranks(float(second))]
    assert requested == [30, 45, 75, 135, 255, 375, 495]


def test_ranks_that_worked_and_then_are_idle_hang() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.requests_stacks_of_working_ranks(30.0)
    assert job.requests_stacks(45.0)
    job.report_stacks(0)
    job.report_stacks(1)
    assert job.detector.diagnosis(job.nodes, 45.0)


def test_the_delay_is_reset_once_ranks_have_moved() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.requests_stacks_of_working_ranks(30.0)
    job.recover(0)
    job.stall(0)
    assert job.requests_stacks_of_working_ranks(31.0)
