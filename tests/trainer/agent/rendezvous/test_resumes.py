"""When nodes have resumed from different states; a wrong warning is worse than none."""

from __future__ import annotations

import pytest

from kittrain.agent.rendezvous.resumes import MOST, Resume, difference, distinct

NOTHING = Resume(node=1)


def of(node: int, name: str, digest: int, age: float, *, private: bool = True) -> Resume:
    return Resume(node=node, name=name, digest=digest, private=private, age=age)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (of(0, "best.pt", 1, 9), NOTHING, "node 0 resumed from best.pt, node 1 from nothing"),
        (Resume(node=0), of(1, "best.pt", 1, 9), "node 0 resumed from nothing, node 1 from best.pt"),
        (of(0, "best.pt", 1, 9), of(1, "start.pt", 2, 9), "node 0 resumed from best.pt, node 1 from start.pt"),
        (of(0, "best.pt", 1, 9), of(1, "best.pt", 2, 900), "node 0 resumed from best.pt, node 1 from best.pt"),
        (of(0, "epoch-4.pt", 1, 9), of(1, "epoch-3.pt", 2, 70), "node 0 resumed from epoch-4.pt, node 1 from epoch-3"),
        (of(0, "best.pt", 1, 9), of(1, "best.pt", 1, 900), ""),  # equal files, saved by each
        (of(0, "ck-0.pt", 1, 9), of(1, "ck-1.pt", 2, 8), ""),  # each rank's own part of one checkpoint
        (of(0, "best.pt", 1, 9), of(1, "best.pt", 2, 8), ""),  # with each rank's random numbers
        (of(0, "best.pt", 1, 9, private=False), NOTHING, ""),  # rank 0 alone loads, on purpose: all see it
        (Resume(node=0), NOTHING, ""),
    ],
)
def test_a_difference_is_told_only_where_it_is_one(first: Resume, second: Resume, told: str) -> None:
    found = difference([first, second])
    assert found.startswith(told)
    assert bool(found) == bool(told)
    assert bool(difference(distinct([second, first]))) == bool(told)


def test_one_node_or_none_differs_from_nobody() -> None:
    assert difference([]) == difference([of(0, "best.pt", 1, 9)]) == ""


def test_few_are_sent_on_from_many_nodes() -> None:
    found = distinct(of(node, f"ck-{node}.pt", node + 1, 9) for node in range(10_000))
    assert [one.node for one in found] == [*range(MOST)]
    assert len(distinct(of(node, "best.pt", 1, node) for node in range(10_000))) == 1
