"""What nodes agree on as they form a round, over a real store and as a rule."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from kitjob import typed
from kitjob.report import NodeAssignment, PastFailure
from kittrain.agent.report.agreement import Agreed, Known, agree, combined
from kittrain.agent.report.departures import Departures
from kittrain.agent.report.steps_taken import last_step

NUMBERS = st.integers(0, 1 << 40)
MARKS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(lambda found: tuple(sorted(found)))


def known(index: int, **fields: Any) -> Known:
    assignment = NodeAssignment(host=f"host-{index}", ranks=(index, index))
    nothing = {"round": 0, "restarts": 0, "failures": (), "loaded": 0, "taken": (), "reached": 0}
    more = {"departures": Departures().facts, "finished": 0, "copies": "", "saves": (), "saved": False}
    return Known(index=index, assignment=assignment, **{**nothing, **more, **fields})


NODES = st.lists(
    st.builds(known, NUMBERS, round=NUMBERS, restarts=NUMBERS, loaded=NUMBERS, reached=NUMBERS, taken=MARKS),
    min_size=1,
    max_size=4,
)


@given(NODES)
def test_a_round_has_a_higher_number_than_any_before_and_nothing_that_a_node_knows_is_forgotten(
    nodes: list[Known],
) -> None:
    found = combined(nodes)
    assert all(found.round > one.round for one in nodes)
    assert all(
        (found.restarts, found.loaded, found.reached)[place] >= (one.restarts, one.loaded, one.reached)[place]
        for one in nodes
        for place in range(3)
    )
    assert found.taken in [one.taken for one in nodes]
    assert all(last_step(found.taken) >= last_step(one.taken) for one in nodes)
    assert typed.load(Agreed, typed.dump(found)) == found
    assert [typed.dump(typed.load(Known, typed.dump(one))) for one in nodes] == [typed.dump(one) for one in nodes]


def test_steps_are_lost_that_all_nodes_of_the_last_round_have_finished_also_before_they_were_reported() -> None:
    last = [known(0, round=3, reached=7, finished=12), known(1, round=3, finished=11)]
    assert combined(last).reached == 11
    assert combined([*last, known(2, round=2, finished=5), known(3)]).reached == 11  # one stood by, one is new
    assert combined([known(1, round=3, finished=11), known(3)]).reached == 11  # the leader is gone
    assert combined([known(0, round=3, reached=7)]).reached == 7  # its ranks ended before their first step
    assert combined([known(0)]).reached == 0


def test_a_script_may_have_saved_unless_all_nodes_of_the_last_round_are_there_and_none_has_seen_it() -> None:
    of_two = {"round": 3, "departures": Departures(round=3, size=2).facts}
    zero, one = known(0, **of_two), known(1, **of_two)
    assert not combined([zero, one, known(2)]).may_save
    assert combined([zero, known(1, **of_two, saved=True)]).may_save
    assert combined([zero, known(1)]).may_save, "the other node of the last round is gone"


def test_checkpoints_that_any_node_has_seen_are_known_to_all() -> None:
    nodes = [known(0, saves=((30, 3), (50, 5))), known(1, saves=((40, 4), (50, 5)))]
    assert combined(nodes).saves == ((30, 3), (40, 4), (50, 5))


def test_where_a_rank_was_is_known_to_all_nodes_and_only_that_of_the_last_round() -> None:
    said = {"departures": Departures(round=3, size=2, elsewhere="rank 0 was at train.py:24").facts}
    old = {"departures": Departures(round=2, size=2, elsewhere="rank 5 was at train.py:9").facts}
    assert combined([known(1, round=3), known(0, round=3, **said)]).elsewhere == "rank 0 was at train.py:24"
    assert combined([known(2, round=2, **old), known(1, round=3)]).elsewhere == ""


def test_only_nodes_that_keep_copies_have_a_place_in_the_order_of_their_ranks() -> None:
    nodes = [known(4, copies="h4:1"), known(0), known(2, copies="h2:1")]
    assert [one["node"] for one in combined(nodes).places] == [4, 2]
    assert combined(nodes).places[0] == {"node": 4, "host": "host-4", "address": "h4:1"}


def test_all_nodes_agree_and_the_first_has_what_each_has_told() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
    failure = PastFailure(node=1, rank=1, cause="ValueError: \udc80")
    nodes = [known(5, round=3), known(1, round=2, failures=(failure,)), known(2, restarts=1)]
    found: dict[int, tuple[Agreed, Any]] = {}

    def meet(rank: int) -> None:
        client = dist.TCPStore("127.0.0.1", store.port, timeout=timedelta(seconds=30), wait_for_workers=False)
        found[rank] = agree(client, nodes[rank], rank=rank, size=3)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [found[rank][0] for rank in range(3)] == [found[0][0]] * 3
    assert (found[0][0].round, found[0][0].restarts) == (4, 1)
    assert [one.index for one in found[0][1]] == [5, 1, 2]
    assert found[0][1][1].failures[0].cause == "ValueError: ?"
    assert list(found[1][1]) == list(found[2][1]) == []
