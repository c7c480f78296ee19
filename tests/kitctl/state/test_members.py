"""Which ranks and nodes may be selected."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base.errors import NotFound
from kitctl.state import members
from kitctl.state.facts import JobFacts, NodeFacts
from kitctl.state.logs import Filter
from kitctl.state.members import Members
from kitjob.report import NodeAssignment, Report

GROUP = {str(index): NodeAssignment(ranks=(4 * index, 4 * index + 3)) for index in range(2)}


def job(nodes: str, **facts: Any) -> JobFacts:
    known: dict[str, Any] = {"report": Report(formed=1.0, nodes=GROUP, world_size=8)} | facts
    return JobFacts(
        name="job",
        namespace="team",
        target="local",
        kind="processes",
        node_range=nodes,
        desired_nodes=2,
        created=0.0,
        nodes=tuple(NodeFacts(index=index, pod=f"job-{index}", alive=True, attempts=1) for index in range(2)),
        **known,
    )


@pytest.mark.parametrize(
    ("job", "rank", "refused"),
    [
        (job("2"), 7, False),
        (job("2"), 8, True),
        (job("2:4"), 15, False),  # it may grow
        (job("2:4"), 16, True),
        (job("2:4", result="Succeeded"), 8, True),
        (job("2", report=None), 99, False),  # nobody knows yet
    ],
)
def test_a_rank_that_an_elastic_job_may_get_is_no_error(job: JobFacts, rank: int, *, refused: bool) -> None:
    if not refused:
        members.check(Filter(ranks=frozenset({rank})), job, Members)
        return
    with pytest.raises(NotFound, match=f"'job' has no rank {rank}") as error:
        members.check(Filter(ranks=frozenset({rank})), job, Members)
    assert error.value.fix == "its ranks are 0-7"


def test_a_member_of_a_former_group_is_none_either() -> None:
    members.check(Filter(ranks=frozenset({11}), nodes=frozenset({2})), job("2"), lambda: Members({11}, {2}))


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((0,), "0"), ((3, 0, 1), "0-1, 3"), (range(512), "0-511"), ((1, 3, 5), "1, 3, 5")]
)
def test_numbers_in_a_row_are_one_span(numbers: tuple[int, ...], text: str) -> None:
    assert members.spans(numbers) == text
