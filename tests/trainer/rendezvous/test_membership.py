"""When a round is formed, in which order, and when it is over."""

from __future__ import annotations

import pytest

from kittrain.rendezvous.membership import Node, Roster, Superseded


class Job:
    """A roster whose nodes come and go by their indices."""

    def __init__(self, fewest: int, most: int) -> None:
        self.roster = Roster(fewest=fewest, most=most, last_call=3.0)
        self.nodes: dict[int, Node] = {}

    def enter(self, *indices: int) -> None:
        for index in indices:
            self.nodes[index] = Node(index=index, born=0.0)
            self.roster.enter(self.nodes[index])

    def join(self, *indices: int, told: tuple[int, int] = (0, 0)) -> list[int]:
        """Nodes are ready, having told the last round's number and size; gives those whose round is over."""
        over: list[Node] = []
        for index in indices:
            over += self.roster.join(self.nodes[index], round=told[0], size=told[1])
        return [node.index for node in over]

    def rejoin(self, *indices: int) -> None:
        self.join(*indices, told=(self.roster.round, 0))

    def leave(self, index: int) -> list[int]:
        return [node.index for node in self.roster.leave(self.nodes.pop(index))]

    def group(self, now: float = 0.0) -> list[int]:
        self.roster.form(now)
        return [node.index for node in self.roster.group]


def running(fewest: int, most: int, *indices: int) -> Job:
    """A job whose first round was formed from these nodes."""
    job = Job(fewest, most)
    job.enter(*indices)
    job.join(*indices)
    job.group(0.0)
    assert job.group(3.0) == sorted(indices)
    return job


def test_ranks_follow_the_pods_order_past_ten() -> None:
    job = Job(12, 12)
    job.enter(*range(12))
    job.join(10, 2, 11, 9, 0, 1, 3, 8, 7, 6, 5)
    assert job.group() == []
    job.join(4)
    assert job.group() == list(range(12))


def test_the_first_round_of_an_elastic_job_has_a_last_call() -> None:
    job = Job(2, 3)
    job.enter(0, 1, 2)
    job.join(0, 1)
    assert job.group(10.0) == []
    assert job.group(12.9) == []
    assert job.group(13.0) == [0, 1]


def test_a_full_house_waits_for_no_clock() -> None:
    assert running(2, 3, 0, 1, 2).group(0.0) == [0, 1, 2]


def test_survivors_go_on_at_once_without_the_node_that_was_lost() -> None:
    job = running(2, 3, 0, 1, 2)
    assert job.leave(1) == [0, 1, 2]
    job.rejoin(0)
    assert job.group() == []  # node 2 is stopping its ranks
    job.rejoin(2)
    assert job.group() == [0, 2]
    assert job.roster.round == 2


def test_too_few_survivors_wait_for_the_node_that_comes_back() -> None:
    job = running(2, 2, 0, 1)
    job.leave(1)
    job.rejoin(0)
    assert job.group(100.0) == []
    job.enter(1)
    assert job.group(100.0) == []
    job.join(1)
    assert job.group(100.0) == [0, 1]


def test_a_node_whose_ranks_failed_ends_the_round_for_all() -> None:
    job = running(2, 2, 0, 1)
    assert sorted(job.join(0, told=(1, 2))) == [0, 1]
    assert job.group() == []
    job.rejoin(1)
    assert job.group() == [0, 1]


def test_a_node_that_makes_the_group_full_ends_the_round_at_once() -> None:
    job = running(1, 2, 0)
    job.enter(1)
    assert job.roster.grow(5.0) == []  # it is not ready yet
    job.join(1)
    assert [node.index for node in job.roster.grow(5.0)] == [0]
    assert job.group(100.0) == []  # however long node 0 takes for its snapshot
    job.rejoin(0)
    assert job.group(100.0) == [0, 1]


def test_a_node_that_leaves_room_for_more_is_kept_for_a_last_call() -> None:
    job = running(1, 3, 0)
    job.enter(1)
    job.join(1)
    assert job.roster.grow(5.0) == []
    assert job.roster.grow(7.9) == []
    assert len(job.roster.grow(8.0)) == 1


def test_a_new_host_counts_on_and_awaits_the_survivors_of_the_round_before() -> None:
    job = Job(2, 4)  # node 0 was lost; it knows nothing
    job.enter(1, 2)
    job.join(1, 2, told=(7, 4))
    assert job.group() == []  # node 3 has not found the new host yet
    job.enter(3)
    job.join(3, told=(7, 4))
    assert job.group() == [1, 2, 3]
    assert job.roster.round == 8


def test_a_new_host_does_not_await_for_ever_who_was_lost_with_the_old_one() -> None:
    job = Job(2, 4)
    job.enter(1, 2)
    job.join(1, 2, told=(7, 4))
    job.group(0.0)
    assert job.group(3.0) == [1, 2]


def test_a_node_that_is_lost_at_the_very_end_does_not_disturb_the_others() -> None:
    job = running(2, 3, 0, 1, 2)
    zero, two = job.nodes[0], job.nodes[2]
    job.roster.succeed(zero)
    assert job.leave(1) == []
    assert job.roster.dismiss() == []
    job.roster.succeed(two)
    assert job.roster.dismiss() == [zero, two]


def test_a_node_that_is_lost_while_it_drains_takes_those_along_whose_ranks_ended_with_its_own() -> None:
    job = running(2, 3, 0, 1, 2)
    job.roster.succeed(job.nodes[0])
    job.nodes[1].draining = True
    assert job.leave(1) == [0, 1, 2]
    assert job.roster.dismiss() == []


def test_a_node_that_waits_while_the_job_finishes_without_it_is_let_go_and_so_is_one_that_comes_later() -> None:
    job = running(2, 3, 1, 2)
    job.enter(0)
    job.join(0)
    job.roster.succeed(job.nodes[1])
    assert job.roster.dismiss() == []
    job.roster.succeed(job.nodes[2])
    assert job.roster.dismiss() == [job.nodes[1], job.nodes[2], job.nodes[0]]
    assert job.roster.dismiss() == []
    for index in (0, 1, 2):
        job.leave(index)
    job.enter(1, 2)
    job.join(1, 2)
    assert job.roster.dismiss() == [job.nodes[1], job.nodes[2]]
    assert job.group(100.0) == []


def test_a_younger_agent_has_a_nodes_place() -> None:
    job = running(2, 2, 0, 1)
    assert job.roster.rival(Node(index=1, born=1.0)) is job.nodes[1]
    assert job.roster.rival(Node(index=2, born=1.0)) is None
    with pytest.raises(Superseded):
        job.roster.rival(Node(index=1, born=-1.0))


def test_an_agent_takes_the_place_of_its_own_connection_that_is_stale() -> None:
    job = running(2, 2, 0, 1)
    assert job.roster.rival(Node(index=1, born=job.nodes[1].born)) is job.nodes[1]


def test_a_round_whose_first_ranks_are_done_is_not_ended_to_make_it_larger() -> None:
    job = running(2, 3, 0, 1)
    job.roster.succeed(job.nodes[1])
    job.enter(2)
    job.join(2)
    assert job.roster.grow(100.0) == []
    assert job.roster.grow(200.0) == []
    assert job.roster.group == [job.nodes[0], job.nodes[1]]


def test_each_round_has_a_last_call_of_its_own() -> None:
    job = running(2, 4, 0, 1)  # whose last call began at 0
    job.enter(2)
    job.join(2)
    assert job.roster.grow(100.0) == []
    assert job.roster.grow(102.9) == []
    assert len(job.roster.grow(103.0)) == 2
    job.rejoin(0, 1)
    assert job.group(103.0) == [0, 1, 2]
    job.enter(3)
    job.join(3)
    assert len(job.roster.grow(200.0)) == 3, "which is all that it can have"
