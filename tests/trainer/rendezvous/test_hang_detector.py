"""When a node counts as lost though it is connected, and when a round hangs."""

from __future__ import annotations

from kittrain.rendezvous.diagnosis import Account
from kittrain.rendezvous.hang_detector import Vigil
from kittrain.rendezvous.membership import Node
from kittrain.rendezvous.stacks import Place
from kittrain.system.heartbeat import Phase


class Round:
    """Two nodes of a round that was formed at second 0."""

    def __init__(self) -> None:
        self.vigil = Vigil(silence=20.0, stopping=60.0)
        self.nodes = [Node(index=index, born=0.0, seated=True) for index in range(2)]
        for node in self.nodes:
            self.vigil.hear(node, 0.0)

    def silent(self, now: float, *, over: bool = False) -> list[int]:
        for node in self.nodes:
            node.active = not over
        return [node.index for node in self.vigil.silent(self.nodes, now)]

    def stall(self, *indices: int) -> None:
        for index in indices:
            self.vigil.stall(self.nodes[index], stalled=True, frozen=False)

    def suspects(self, now: float = 30.0) -> bool:
        return self.vigil.suspects(self.nodes, now)

    def explain(self, index: int, **more: bool) -> None:
        place = Place(line="train.py:1 in loss")
        facts = {"answers": True, "frozen": False} | more
        told = Account(rank=index, step=1, phase=Phase.DATA, still=30.0, place=place, **facts)  # type: ignore[arg-type]
        self.vigil.explain(self.nodes[index], [told])

    def asked_and_busy(self, now: float) -> bool:
        """Whether nodes are asked, who then say that one of them works."""
        if not self.suspects(now):
            return False
        self.explain(0)
        self.explain(1, busy=True, allowed=True)
        assert self.vigil.verdict(self.nodes, now) is None
        return True


def test_a_node_whose_ranks_run_is_lost_when_it_says_nothing() -> None:
    job = Round()
    job.vigil.hear(job.nodes[0], 19.0)
    assert job.silent(20.0) == []
    assert job.silent(20.1) == [1]


def test_a_node_that_stops_its_ranks_may_take_the_grace_period() -> None:
    assert Round().silent(79.9, over=True) == []
    assert Round().silent(80.1, over=True) == [0, 1]


def test_a_node_that_waits_for_a_round_has_nothing_to_say() -> None:
    job = Round()
    job.nodes[0].seated = False
    job.nodes[1].ready = True
    assert job.silent(1000.0, over=True) == []


def test_nobody_is_asked_before_all_are_stalled_and_then_once() -> None:
    job = Round()
    job.stall(0)
    assert not job.suspects()
    job.stall(1)
    assert job.suspects()
    assert not job.suspects()


def test_one_rank_that_is_frozen_is_enough_until_it_moves_again() -> None:
    job = Round()
    job.vigil.stall(job.nodes[0], stalled=False, frozen=True)
    assert job.suspects()
    job.explain(0)
    job.explain(1)
    job.vigil.stall(job.nodes[1], stalled=False, frozen=False)
    assert job.vigil.verdict(job.nodes, 30.0)
    job.vigil.stall(job.nodes[0], stalled=False, frozen=False)
    assert not job.suspects()
    assert job.vigil.verdict(job.nodes, 30.0) is None


def test_ranks_that_are_done_are_not_waited_for() -> None:
    job = Round()
    job.nodes[0].done = True
    job.stall(1)
    assert job.suspects()
    job.nodes[1].done = True
    job.vigil.begin()
    assert not job.suspects()


def test_a_verdict_needs_all_accounts_or_some_patience() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.suspects()
    job.explain(0)
    assert job.vigil.verdict(job.nodes, 34.9) is None
    late = job.vigil.verdict(job.nodes, 35.0)
    assert late
    assert late.text.startswith("hang: rank 0 ")
    job.explain(1)
    verdict = job.vigil.verdict(job.nodes, 30.0)
    assert verdict
    assert verdict.text.startswith("hang: ranks 0-1 ")


def test_a_node_whose_ranks_move_again_takes_the_suspicion_back() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.suspects()
    job.vigil.stall(job.nodes[1], stalled=False, frozen=False)
    job.explain(0)
    assert job.vigil.verdict(job.nodes, 1000.0) is None
    assert not job.suspects()
    job.stall(1)
    assert job.suspects()


def test_without_any_account_a_hang_is_still_a_hang() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.suspects()
    verdict = job.vigil.verdict(job.nodes, 40.0)
    assert verdict
    assert verdict.text == "hang: no rank moves, and no agent says why"


def test_ranks_that_work_are_given_more_time_and_asked_again_ever_more_seldom() -> None:
    job = Round()
    job.stall(0, 1)
    asked = [second for second in range(30, 600) if job.asked_and_busy(float(second))]
    assert asked == [30, 45, 75, 135, 255, 375, 495]


def test_ranks_that_have_worked_and_then_do_nothing_hang() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.asked_and_busy(30.0)
    assert job.suspects(45.0)
    job.explain(0)
    job.explain(1)
    assert job.vigil.verdict(job.nodes, 45.0)


def test_how_seldom_they_are_asked_begins_anew_once_they_have_moved() -> None:
    job = Round()
    job.stall(0, 1)
    assert job.asked_and_busy(30.0)
    job.vigil.stall(job.nodes[0], stalled=False, frozen=False)
    job.stall(0)
    assert job.asked_and_busy(31.0)
