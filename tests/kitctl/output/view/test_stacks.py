"""Stacks as text: ranks at the same place together, the rarest first; frames of libraries folded; escaped."""

from __future__ import annotations

from kitctl.output.view.stacks import page
from kitctl.state.stacks import NodeStacks, only
from kitjob.stacks import RankStack, StackFrame, ThreadStack

TORCH = "/x/lib/python3.11/site-packages/torch/nn/modules/module.py"
REDUCE = (
    StackFrame(file="/x/site-packages/torch/distributed/distributed_c10d.py", line=9, function="all_reduce"),
    *[StackFrame(file=TORCH, line=line, function="_call_impl") for line in range(4)],
    StackFrame(file="/x/site-packages/kittrain/rank/training/loop.py", line=1, function="fit"),
    StackFrame(file="/w/train.py", line=40, function="<module>"),
)
SLEEP = (StackFrame(file="/w/h\x1b[2J.py", line=5, function="rest"), *REDUCE[-1:])


def stack(rank: int, frames: tuple[StackFrame, ...], **facts: str) -> RankStack:
    threads = (ThreadStack(main=True, frames=frames), ThreadStack(main=False, name="pin", frames=REDUCE[:1]))
    return RankStack(rank=rank, pid=100 + rank, step=7, phase="the backward pass", threads=threads, **facts)


NODES = [
    NodeStacks(node=0, ranks=(stack(0, REDUCE, wait="all_reduce"), stack(1, SLEEP))),
    NodeStacks(node=1, ranks=tuple(stack(rank, REDUCE, wait="all_reduce") for rank in (2, 3, 5))),
    NodeStacks(node=2, note="pod run-2 did not answer"),
]


def test_the_rank_that_is_elsewhere_comes_first_and_equal_ones_once() -> None:
    assert page(NODES) == [
        "node 2: pod run-2 did not answer",
        "",
        "rank 1 (node 0, process 101), step 7, the backward pass",
        "  rest  /w/h\\x1b[2J.py:5",
        "  <module>  /w/train.py:40",
        "  (1 further thread: --full)",
        "",
        "ranks 0, 2-3, 5 (nodes 0-1), step 7, the backward pass, waits in all_reduce",
        "  all_reduce  /x/site-packages/torch/distributed/distributed_c10d.py:9",
        "  ... 4 frames of torch, 1 of kittrain",
        "  <module>  /w/train.py:40",
        "  (1 further thread: --full)",
    ]


def test_full_has_all_frames_of_all_threads() -> None:
    lines = page(only(NODES, frozenset({5})), full=True)
    assert len([line for line in lines if "_call_impl" in line]) == 4
    assert lines[-2:] == ["  thread pin:", "    all_reduce  /x/site-packages/torch/distributed/distributed_c10d.py:9"]
    assert "..." not in "".join(lines)


def test_no_number_of_threads_is_told_that_was_cut() -> None:
    few = ThreadStack(main=False, frames=SLEEP)
    cut = RankStack(rank=0, pid=9, threads=(ThreadStack(main=True, frames=SLEEP), *[few] * 99))
    assert page([NodeStacks(node=0, ranks=(cut,))])[-1] == "  (99 or more further threads: --full)"
