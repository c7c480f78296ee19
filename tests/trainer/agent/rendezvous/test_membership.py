"""When a round is formed, in which order, and when it ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kittrain.agent.rendezvous import succession
from kittrain.agent.rendezvous.growth import Growth
from kittrain.agent.rendezvous.membership import Membership, Node, Superseded


class Job:
    """A membership whose nodes connect and disconnect by their indices."""

    def __init__(self, min_nodes: int, max_nodes: int, spares: int = 0) -> None:
        self.membership = Membership(min_nodes=min_nodes, max_nodes=max_nodes, spares=spares, last_call_timeout=3.0)
        self.nodes: dict[int, Node] = {}

    def connect(self, *indices: int) -> None:
        for index in indices:
            self.nodes[index] = Node(index=index, started_at=0.0)
            self.membership.add(self.nodes[index])

    def join(self, *indices: int, last_round: tuple[int, int] = (0, 0)) -> list[int]:
        """Nodes are ready, and send the last round's number and size; returns those whose round this ends."""
        ended: list[Node] = []
        for index in indices:
            number, size = last_round
            known = succession.configuration(number, range(size)) if size else None
            known = self.membership.known[0] if number and not size else known
            place = index if known else None
            ended += self.membership.join(self.nodes[index], known=[known] if known else [], place=place)
        return [node.index for node in ended]

    def rejoin(self, *indices: int) -> None:
        self.join(*indices, last_round=(self.membership.round, 0))

    def remove(self, index: int) -> list[int]:
        """A node is lost, and is known to have ended."""
        ended = self.membership.remove(self.nodes[index])
        self.membership.depart(index, at=self.nodes.pop(index).last)
        return [node.index for node in ended]

    def group(self, now: float = 0.0) -> list[int]:
        self.membership.form_round(now)
        return [node.index for node in self.membership.group]

    def standing_by(self) -> list[int]:
        return [node.index for node in self.membership.standing_by]


def running(min_nodes: int, max_nodes: int, *indices: int, spares: int = 0) -> Job:
    """A job whose first round consists of these nodes."""
    job = Job(min_nodes, max_nodes, spares)
    job.connect(*indices)
    job.join(*indices)
    job.group(0.0)
    assert job.group(3.0) == sorted(indices)
    return job


def test_group_ranks_follow_the_numeric_order_of_nodes() -> None:
    job = Job(12, 12)
    job.connect(*range(12))
    job.join(10, 2, 11, 9, 0, 1, 3, 8, 7, 6, 5)
    assert job.group() == []
    job.join(4)
    assert job.group() == list(range(12))


def test_the_first_round_of_an_elastic_job_has_a_last_call() -> None:
    job = Job(2, 3)
    job.connect(0, 1, 2)
    job.join(0, 1)
    assert job.group(10.0) == []
    assert job.group(12.9) == []
    assert job.group(13.0) == [0, 1]


def test_a_full_group_waits_for_no_last_call() -> None:
    assert running(2, 3, 0, 1, 2).group(0.0) == [0, 1, 2]


def test_survivors_continue_at_once_without_the_lost_node() -> None:
    job = running(2, 3, 0, 1, 2)
    assert job.remove(1) == [0, 1, 2]
    job.rejoin(0)
    assert job.group() == []  # node 2 is stopping its ranks
    job.rejoin(2)
    assert job.group() == [0, 2]
    assert job.membership.round == 2


def test_too_few_survivors_wait_for_the_lost_node() -> None:
    job = running(2, 2, 0, 1)
    job.remove(1)
    job.rejoin(0)
    assert job.group(100.0) == []
    job.connect(1)
    assert job.group(100.0) == []
    job.join(1)
    assert job.group(100.0) == [0, 1]


def test_a_node_whose_ranks_failed_ends_the_round_for_all() -> None:
    job = running(2, 2, 0, 1)
    assert sorted(job.join(0, last_round=(1, 2))) == [0, 1]
    assert job.group() == []
    job.rejoin(1)
    assert job.group() == [0, 1]


def test_a_node_that_completes_the_group_ends_the_round_at_once() -> None:
    job = running(1, 2, 0)
    job.connect(1)
    assert job.membership.scale_up(5.0) == []  # node 1 is not ready yet
    job.join(1)
    assert [node.index for node in job.membership.scale_up(5.0)] == [0]
    assert job.group(100.0) == []  # even if node 0 takes long for its snapshot
    job.rejoin(0)
    assert job.group(100.0) == [0, 1]


def test_a_node_that_does_not_complete_the_group_waits_for_a_last_call() -> None:
    job = running(1, 3, 0)
    job.connect(1)
    job.join(1)
    assert job.membership.scale_up(5.0) == []
    assert job.membership.scale_up(7.9) == []
    assert len(job.membership.scale_up(8.0)) == 1


def test_a_new_hub_continues_the_count_and_waits_for_the_survivors_of_the_last_round() -> None:
    job = Job(2, 4)  # node 0 was lost, so its hub is new
    job.connect(1, 2)
    job.join(1, 2, last_round=(7, 4))
    assert job.group() == []  # node 3 has not connected to the new hub yet
    job.connect(3)
    job.join(3, last_round=(7, 4))
    assert job.group() == [1, 2, 3]
    assert job.membership.round == 8


def test_a_new_hub_does_not_wait_forever_for_nodes_that_were_lost_with_the_old_one() -> None:
    job = Job(2, 4)
    job.connect(1, 2)
    job.join(1, 2, last_round=(7, 4))
    job.group(0.0)
    assert job.group(3.0) == [], "the other half may go on"
    job.membership.claim(7)
    assert job.group(3.0) == [1, 2]


def test_a_node_lost_while_others_are_done_does_not_end_their_round() -> None:
    job = running(2, 3, 0, 1, 2)
    zero, two = job.nodes[0], job.nodes[2]
    job.membership.mark_done(zero)
    assert job.remove(1) == []
    assert job.membership.finish() == []
    job.membership.mark_done(two)
    assert job.membership.finish() == [zero, two]


def test_a_node_lost_while_it_drains_ends_the_round_even_if_others_are_done() -> None:
    job = running(2, 3, 0, 1, 2)
    job.membership.mark_done(job.nodes[0])
    job.nodes[1].draining = True
    assert job.remove(1) == [0, 1, 2]
    assert job.membership.finish() == []


def test_nodes_that_wait_or_connect_when_the_job_has_finished_are_released() -> None:
    job = running(2, 3, 1, 2)
    job.connect(0)
    job.join(0)
    job.membership.mark_done(job.nodes[1])
    assert job.membership.finish() == []
    job.membership.mark_done(job.nodes[2])
    assert job.membership.finish() == [job.nodes[1], job.nodes[2], job.nodes[0]]
    assert job.membership.finish() == []
    for index in (0, 1, 2):
        job.remove(index)
    job.connect(1, 2)
    job.join(1, 2)
    assert job.membership.finish() == [job.nodes[1], job.nodes[2]]
    assert job.group(100.0) == []


def test_a_newer_agent_replaces_an_older_one() -> None:
    job = running(2, 2, 0, 1)
    assert job.membership.predecessor(Node(index=1, started_at=1.0), first=False) is job.nodes[1]
    assert job.membership.predecessor(Node(index=2, started_at=1.0), first=True) is None
    with pytest.raises(Superseded):
        job.membership.predecessor(Node(index=1, started_at=-1.0), first=False)


def test_an_agent_that_connects_for_the_first_time_is_the_newer_one_whatever_its_clock_says() -> None:
    job = running(2, 2, 0, 1)
    assert job.membership.predecessor(Node(index=1, started_at=-86400.0), first=True) is job.nodes[1]


def test_an_agent_replaces_its_own_stale_connection() -> None:
    job = running(2, 2, 0, 1)
    assert job.membership.predecessor(Node(index=1, started_at=job.nodes[1].started_at), first=False) is job.nodes[1]


def test_a_round_with_finished_ranks_is_not_scaled_up() -> None:
    job = running(2, 3, 0, 1)
    job.membership.mark_done(job.nodes[1])
    job.connect(2)
    job.join(2)
    assert job.membership.scale_up(100.0) == []
    assert job.membership.scale_up(200.0) == []
    assert job.membership.group == [job.nodes[0], job.nodes[1]]


def test_each_round_has_its_own_last_call() -> None:
    job = running(2, 4, 0, 1)  # its last call began at 0
    job.connect(2)
    job.join(2)
    assert job.membership.scale_up(100.0) == []
    assert job.membership.scale_up(102.9) == []
    assert len(job.membership.scale_up(103.0)) == 2
    job.rejoin(0, 1)
    assert job.group(103.0) == [0, 1, 2]
    job.connect(3)
    job.join(3)
    assert len(job.membership.scale_up(200.0)) == 3, "the maximum is reached"


def with_spare() -> Job:
    """Three nodes train, and one stands by."""
    job = running(3, 3, 0, 1, 2, spares=1)
    job.connect(3)
    job.join(3)
    assert (job.group(), job.standing_by()) == ([0, 1, 2], [3])
    return job


def test_a_spare_takes_the_place_of_a_lost_node_at_once() -> None:
    job = with_spare()
    assert job.remove(1) == [0, 1, 2]
    assert job.standing_by() == []
    job.rejoin(0)
    assert job.group() == []  # node 2 is stopping its ranks
    job.rejoin(2)
    assert job.group() == [0, 3, 2]
    job.connect(1)
    job.join(1)  # its replacement is the new spare
    assert job.membership.scale_up(100.0) == []
    assert job.standing_by() == [1]


def test_a_spare_stays_one_when_ranks_fail() -> None:
    job = with_spare()
    job.remove(1)
    job.rejoin(0, 2)
    assert job.group() == [0, 3, 2]
    job.connect(1)
    job.join(1)
    job.rejoin(3)
    assert job.group() == []
    job.rejoin(0, 2)
    assert (job.group(), job.standing_by()) == ([0, 3, 2], [1])


def test_a_lost_spare_ends_no_round() -> None:
    job = with_spare()
    assert job.remove(3) == []
    assert (job.group(), job.standing_by()) == ([0, 1, 2], [])


def test_without_a_spare_left_the_others_wait() -> None:
    job = with_spare()
    job.remove(1)
    job.remove(3)
    job.rejoin(0, 2)
    assert job.group(100.0) == []


def test_a_draining_node_is_replaced_once_it_has_left() -> None:
    job = with_spare()
    job.nodes[2].draining = True
    assert job.membership.end_round(job.nodes[2])
    job.rejoin(0, 1)
    assert job.group(100.0) == []  # it takes its snapshot
    job.remove(2)
    assert job.group(100.0) == [0, 1, 3]


def handing_over() -> Job:
    """A job of two to three nodes and a spare, whose node 0 was drained and has left its own hub."""
    job = running(2, 3, 0, 1, 2, spares=1)
    job.connect(3)
    job.join(3)
    job.nodes[0].draining = True
    assert job.membership.end_round(job.nodes[0])
    job.membership.retire()
    job.remove(0)
    for node in job.nodes.values():
        node.hub_port = 4711
    return job


def heir(job: Job) -> int | None:
    found = job.membership.heir
    return found.index if found else None


def test_a_hub_that_ends_forms_no_round_and_names_the_first_node_of_the_last_one() -> None:
    job = handing_over()
    job.rejoin(2)
    assert heir(job) is None, "node 1 still stops its ranks"
    job.rejoin(1)
    assert job.group(100.0) == []
    assert heir(job) == 1
    assert job.membership.ended == [0]
    job.nodes[1].draining = True
    assert heir(job) == 2


def test_the_hub_that_takes_over_waits_for_those_that_are_sent_there() -> None:
    job = handing_over()
    last = job.membership.known
    job.membership = Membership(min_nodes=2, max_nodes=3, spares=1, last_call_timeout=3.0, first=False)
    job.connect(1, 2, 3)
    for index in (1, 2):
        job.membership.join(job.nodes[index], known=last, place=index, gone=[0], coming=[1, 2, 3])
    assert job.group(0.0) == []
    job.membership.join(job.nodes[3], known=last, gone=[0], coming=[1, 2, 3])
    assert job.group(0.0) == [3, 1, 2]


def test_the_hub_that_takes_over_does_not_wait_forever() -> None:
    job = handing_over()
    last = job.membership.known
    job.membership = Membership(min_nodes=2, max_nodes=3, spares=1, last_call_timeout=3.0, first=False)
    job.connect(1, 2)
    for index in (1, 2):
        job.membership.join(job.nodes[index], known=last, place=index, gone=[0], coming=[1, 2, 3])
    assert job.group(0.0) == []
    assert job.group(3.0) == [1, 2]


def test_the_first_round_prefers_the_first_nodes_for_a_while() -> None:
    job = Job(2, 2, spares=2)
    job.connect(0, 1, 2, 3)
    job.join(0, 2, 3)
    assert job.group(5.0) == []
    assert job.group(7.9) == []
    assert job.group(8.0) == [0, 2]
    job = Job(2, 2, spares=1)
    job.connect(0, 1, 2)
    job.join(2, 0)
    assert job.group(5.0) == []
    job.join(1)
    assert job.group(5.0) == [0, 1]


def test_an_elastic_job_is_made_full_by_a_spare() -> None:
    job = running(1, 2, 0, 1, spares=1)
    job.connect(2)
    job.join(2)
    assert job.standing_by() == [2]
    job.remove(1)
    job.rejoin(0)
    assert job.group(0.0) == [0, 2]  # no last call


def test_a_new_hub_takes_spares_for_the_nodes_that_it_does_not_know() -> None:
    job = Job(3, 3, spares=1)  # node 0 was lost, so its hub is new
    job.connect(1, 2, 3)
    job.join(1, 2, last_round=(7, 3))
    assert job.group() == []
    job.join(3)
    assert job.group() == [3, 1, 2], "survivors keep their places"
    assert job.membership.round == 8


def test_spares_are_released_when_the_job_has_finished() -> None:
    job = with_spare()
    for index in (0, 1, 2):
        job.membership.mark_done(job.nodes[index])
    assert job.membership.finish() == [job.nodes[index] for index in (0, 1, 2, 3)]


def growing(every: float) -> Job:
    """A job of up to four nodes, of which one trains."""
    job = Job(1, 4)
    job.membership = Membership(min_nodes=1, max_nodes=4, last_call_timeout=3.0, growth=Growth(every))
    job.connect(0)
    job.join(0)
    job.group(0.0)
    assert job.group(3.0) == [0]
    return job


def comes(job: Job, index: int) -> None:
    job.connect(index)
    job.join(index)


def test_a_job_that_never_grows_lets_newcomers_stand_by_and_replace_what_is_lost() -> None:
    job = growing(math.inf)
    comes(job, 1)
    assert job.membership.scale_up(1e9) == []
    assert job.standing_by() == [1]
    assert job.remove(0) == [0]
    assert job.group(1e9) == [1]
    comes(job, 0)
    assert job.membership.scale_up(2e9) == []
    assert (job.group(2e9), job.standing_by()) == ([1], [0])


def test_a_job_grows_once_for_all_that_come_within_the_least_time() -> None:
    job = growing(60.0)
    comes(job, 1)
    job.membership.scale_up(100.0)  # the last call begins
    assert job.standing_by() == [], "the first growth waits for nothing but its last call"
    assert len(job.membership.scale_up(103.0)) == 1
    job.rejoin(0)
    assert job.group(103.0) == [0, 1]
    comes(job, 2)
    assert job.membership.scale_up(110.0) == []
    assert job.standing_by() == [2], "a node that has to wait does not give up"
    comes(job, 3)
    assert job.membership.scale_up(162.9) == []
    assert len(job.membership.scale_up(163.0)) == 2
    job.rejoin(0, 1)
    assert job.group(163.0) == [0, 1, 2, 3]


EVENTS = st.lists(st.tuples(st.sampled_from(["comes", "lost"]), st.integers(0, 3), st.floats(0.1, 40.0)), max_size=30)


@given(every=st.sampled_from([0.0, 5.0, 60.0, math.inf]), events=EVENTS)
def test_growths_keep_their_distance_and_nobody_waits_longer_than_that(
    every: float, events: list[tuple[str, int, float]]
) -> None:
    job = growing(every)
    now, grown = 3.0, [-math.inf]
    for what, index, pause in events:
        if what == "comes" and index not in job.nodes:
            comes(job, index)
        elif what == "lost" and index in job.nodes and len(job.nodes) > 1:
            job.remove(index)
        until = now + pause
        while now < until:
            now = min(now + 0.5, until)
            if ended := job.membership.scale_up(now):
                assert now - grown[-1] >= every
                grown.append(now)
                job.rejoin(*(node.index for node in ended))
            left = [i for i, node in job.nodes.items() if node.in_last_round and not (node.active or node.ready)]
            job.rejoin(*left)
            job.group(now)
    for _ in range(2):  # the last call, or the least time
        now += 1000.0
        if ended := job.membership.scale_up(now):
            job.rejoin(*(node.index for node in ended))
        job.group(now)
        now += 5.0
        if ended := job.membership.scale_up(now):
            job.rejoin(*(node.index for node in ended))
        job.group(now)
    waiting = sorted(index for index, node in job.nodes.items() if not node.active)
    assert waiting == [] or math.isinf(every)
    assert waiting == job.standing_by()
