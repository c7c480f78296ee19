"""Any one node, or machine, may be lost: all shards are still somewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.snapshots.folder.held import Spread
from kittrain.rank.snapshots.peers.placement import Place, count, lacking, wanted

Holders = tuple[tuple[int, ...], ...]


def ring(hosts: Sequence[str]) -> list[Place]:
    return [Place(node=number, host=host, address=f"h:{number}") for number, host in enumerate(hosts)]


def spread(holders: Holders) -> Spread:
    return Spread(step=1, generation=1, digest="d", holders=holders)


def after(holders: Holders, tasks: Mapping[int, Sequence[int]]) -> Holders:
    """Who holds what once all nodes have fetched what they should."""
    return tuple(
        (*held, *(node for node, numbers in tasks.items() if number in numbers)) for number, held in enumerate(holders)
    )


rings = st.lists(st.sampled_from("abcd"), min_size=1, max_size=8).map(ring)


@given(rings, st.integers(1, 3), st.integers(2, 3))
def test_as_written_any_nodes_but_one_may_be_lost(places: list[Place], ranks: int, copies: int) -> None:
    written: Holders = tuple((place.node,) for place in places for _ in range(ranks))
    holders = after(written, lacking(spread(written), places, copies))
    hosts = {place.host for place in places}
    lost = [{place.node} for place in places] if len(places) > 1 else []
    if len(hosts) >= wanted(places, copies) > 1:
        lost += [{place.node for place in places if place.host == host} for host in hosts]
    for nodes in lost:
        assert all(set(held) - nodes for held in holders)
    assert count(spread(holders), places, copies) == wanted(places, copies)
    assert lacking(spread(holders), places, copies) == {}  # and then it is enough


@given(rings, st.data())
def test_whoever_holds_what_there_are_enough_copies_after(places: list[Place], data: st.DataObject) -> None:
    """After nodes were lost, or have come: a shard may be anywhere, and more than once."""
    anywhere = st.sets(st.sampled_from([place.node for place in places]), min_size=1).map(sorted).map(tuple)
    holders: Holders = tuple(data.draw(st.lists(anywhere, min_size=1, max_size=6)))
    tasks = lacking(spread(holders), places)
    new = after(holders, tasks)
    assert count(spread(new), places) == wanted(places)
    assert all(len(set(held)) == len(held) for held in new)  # nothing is fetched that is there
    assert all(len(held) <= max(len(old), 1) + 1 for held, old in zip(new, holders, strict=True))


def test_each_node_keeps_the_shards_of_one_other() -> None:
    written: Holders = tuple((node,) for node in range(5))
    assert lacking(spread(written), ring("abcde")) == {1: [0], 2: [1], 3: [2], 4: [3], 0: [4]}


def test_a_copy_is_on_another_machine_if_there_is_one() -> None:
    written: Holders = ((0,), (1,), (2,))
    assert lacking(spread(written), ring("aab")) == {2: [0, 1], 0: [2]}


def test_on_one_machine_it_is_on_another_node() -> None:
    assert lacking(spread(((0,), (1,))), ring("aa")) == {1: [0], 0: [1]}


def test_a_lone_node_has_no_neighbour() -> None:
    assert lacking(spread(((0,),)), ring("a")) == {}
    assert count(spread(((0,),)), ring("a")) == wanted(ring("a")) == 1


def test_what_nodes_hold_that_are_not_there_does_not_count() -> None:
    assert count(spread(((0, 7), (0, 1))), ring("ab")) == 1
    assert lacking(spread(((0, 7), (0, 1))), ring("ab")) == {1: [0]}
