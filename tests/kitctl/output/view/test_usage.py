"""The table of what ranks use."""

from __future__ import annotations

from kitctl.output.view.layout import cells
from kitctl.output.view.usage import page
from kitctl.state.usage import NodeUsage, of_nodes
from kitjob.usage import NodeUse, RankUsage

GIB = 1 << 30


def test_a_row_a_rank_and_one_for_a_node_with_several() -> None:
    ranks = (RankUsage(rank=2, pid=1, cpu=1.5, memory=GIB, processes=3), RankUsage(rank=3, pid=2, cpu=0.25, memory=GIB))
    nodes = [
        NodeUsage(node=0, note="no \x1b[2Jrunc"),
        NodeUsage(node=1, use=NodeUse(ranks=ranks, cpu_limit=8.0, memory_limit=32 * GIB)),
    ]
    assert page(nodes) == [
        "NODE   RANK   CPU         MEMORY            PROCESSES",
        "1      2      1.50        1 GiB             3",
        "1      3      0.25        1 GiB             1",
        "1      all    1.75 of 8   2 GiB of 32 GiB   4",
        r"node 0: no \x1b[2Jrunc",
    ]


def test_a_gpu_where_it_is_known_and_no_line_beyond_the_terminal() -> None:
    rank = RankUsage(rank=0, pid=1, cpu=1.0, memory=GIB, gpu=0, gpu_busy=0.93, gpu_memory=61 * GIB, gpu_total=139 * GIB)
    nodes = [NodeUsage(node=0, use=NodeUse(ranks=(rank,))), NodeUsage(node=1, note="does not answer " * 9)]
    assert page(nodes)[1].split() == ["0", "0", "1.00", "1", "GiB", "1", "0", "93%", "61", "GiB", "of", "139", "GiB"]
    assert max(map(cells, page(nodes, 60))) <= 60


def test_a_node_without_ranks_says_so() -> None:
    (found,) = of_nodes([4], b'[{"ranks": []}]')
    assert page([found]) == ["node 4: no rank runs: the node starts, ends, or waits for others"]
