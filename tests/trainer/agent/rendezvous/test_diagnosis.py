"""The cause of a hang, in one sentence, from the status of each rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kittrain.agent.rendezvous.diagnosis import RankStatus, diagnose, making_progress, other_group, ranges
from kittrain.agent.rendezvous.stacks import Location
from kittrain.system.calls import Call
from kittrain.system.heartbeat import Phase

GRADIENTS = Location(wait="the gradients' all-reduce", line="train.py:40 in train")
READING = Location(line="data.py:12 in __getitem__")
REDUCING = Location(wait="all_reduce", line="train.py:31 in loss")


def at(
    rank: int, location: Location = GRADIENTS, *, phase: Phase = Phase.BACKWARD, step: int = 120, **more: Any
) -> RankStatus:
    facts: dict[str, Any] = {
        "stalled_seconds": 34.2,
        "has_stack": True,
        "frozen": False,
        "node": f"node {rank}, pod run-{rank}",
    }
    return RankStatus(rank=rank, step=step, phase=phase, location=location, **facts | more)


def call(length: int) -> Call:
    return Call(number=3, group=1, size=4 * length, name="all_reduce", tensor=f"[{length}] float32")


@pytest.mark.parametrize(
    ("statuses", "rank", "text"),
    [
        pytest.param(
            [at(0), at(1), at(2, READING, phase=Phase.DATA), at(3)],
            2,
            "rank 2 (node 2, pod run-2) has been in data loading of step 121 for 34 s, at data.py:12 in __getitem__; "
            "ranks 0-1, 3 wait in the gradients' all-reduce",
            id="outside of the collective",
        ),
        pytest.param(
            [at(0, step=121), at(1, step=121), at(2, Location(), has_stack=False, frozen=True, phase=Phase.UPDATING)],
            2,
            "rank 2 (node 2, pod run-2) has been stopped (by SIGSTOP, or a debugger) in the optimizer of step 121 for "
            "34 s; ranks 0-1 wait in the gradients' all-reduce",
            id="frozen",
        ),
        pytest.param(
            [at(0), at(1, Location(), has_stack=False, phase=Phase.SAVING)],
            1,
            "rank 1 (node 1, pod run-1) has been in a snapshot after step 120 for 34 s, and cannot print its "
            "stack; rank 0 waits in the gradients' all-reduce",
            id="in a system call",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.DATA, step=121), at(1, READING, phase=Phase.UPDATING)],
            1,
            "rank 1 (node 1, pod run-1) has been in the optimizer of step 121 for 34 s, at data.py:12 in __getitem__; "
            "rank 0 waits in data loading",
            id="a step behind",
        ),
        pytest.param(
            [at(0, REDUCING, phase=Phase.FORWARD), at(1), at(2, REDUCING, phase=Phase.FORWARD)],
            1,
            "rank 1 (node 1, pod run-1) has been in the gradients' all-reduce of step 121 for 34 s, at train.py:40 in "
            "train, which not all ranks have entered; ranks 0, 2 wait in all_reduce",
            id="skipped a collective",
        ),
        pytest.param(
            [at(0, REDUCING, call=call(4)), at(1, REDUCING, call=call(2)), at(2, REDUCING, call=call(4))],
            1,
            "rank 1 (node 1, pod run-1) has been in all_reduce of step 121 for 34 s, at train.py:31 in loss, with "
            "[2] float32, where others have another size; ranks 0, 2 wait in all_reduce",
            id="a tensor of another size",
        ),
        pytest.param(
            [at(rank, REDUCING, call=replace(call(4), name="broadcast", root=int(rank == 1))) for rank in range(3)],
            1,
            "rank 1 (node 1, pod run-1) has been in all_reduce of step 121 for 34 s, at train.py:31 in loss, with one "
            "of [4] float32 from rank 1, where others name another rank; ranks 0, 2 wait in all_reduce",
            id="another source",
        ),
        pytest.param(
            [at(rank, REDUCING, call=replace(call(4), group=int(rank == 1))) for rank in range(3)],
            1,
            "rank 1 (node 1, pod run-1) has been in all_reduce of step 121 for 34 s, at train.py:31 in loss, of a "
            "group of ranks, where others are in one of another group; ranks 0, 2 wait in all_reduce",
            id="another group",
        ),
        pytest.param(
            [at(0), at(1, REDUCING, phase=Phase.FORWARD)],
            0,
            "rank 0 (node 0, pod run-0) has been in the gradients' all-reduce of step 121 for 34 s, at train.py:40 in "
            "train, which not all ranks have entered; rank 1 waits in all_reduce",
            id="of two, the one in the later phase",
        ),
        pytest.param(
            [at(0), at(1)],
            0,
            "ranks 0-1 have been in the gradients' all-reduce of step 121 for 34 s, at train.py:40 in train, although "
            "all have entered it: check the network and the devices",
            id="all have entered it",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.DATA)],
            0,
            "rank 0 (node 0, pod run-0) has been in data loading of step 121 for 34 s, at data.py:12 in __getitem__",
            id="single rank",
        ),
    ],
)
def test_the_diagnosis_names_the_rank_that_blocks_the_others(statuses: list[RankStatus], rank: int, text: str) -> None:
    found = diagnose(statuses)
    assert (found.rank, found.text) == (rank, f"hang: {text}")


def test_ranges_of_ranks() -> None:
    assert ranges([7, 0, 1, 2, 5]) == "0-2, 5, 7"


WORKING: dict[str, Any] = {"busy": True, "cores": 0.93, "exempt": True}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        pytest.param([at(0), at(1, READING, phase=Phase.FORWARD, **WORKING)], True, id="the others wait for it"),
        pytest.param([at(0, READING, phase=Phase.DATA, **WORKING)] * 2, True, id="all compute"),
        pytest.param([at(0, **WORKING), at(1, **WORKING)], True, id="all compute in the backward pass"),
        pytest.param([at(0, REDUCING, **WORKING), at(1, REDUCING, **WORKING)], False, id="all spin in a collective"),
        pytest.param([at(0, REDUCING, **WORKING), at(1, READING, phase=Phase.DATA)], False, id="the others spin"),
        pytest.param(
            [at(0, READING, phase=Phase.FORWARD, step=121, **WORKING), at(1, READING, phase=Phase.DATA)],
            False,
            id="one is ahead of one that is stuck",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.FORWARD, **WORKING), at(1, READING, phase=Phase.DATA)],
            False,
            id="ahead within a step",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.FORWARD, **WORKING), at(1, READING, phase=Phase.FORWARD)],
            True,
            id="the other one waits for it outside of a collective",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.SYNCING, **WORKING), at(1, READING, phase=Phase.DATA)],
            True,
            id="a step is counted before its last phase",
        ),
        pytest.param(
            [at(0, READING, **WORKING), at(1, Location(), has_stack=False, frozen=True)], False, id="one is stopped"
        ),
        pytest.param([at(0), at(1, READING, **WORKING | {"exempt": False})], False, id="not exempt"),
        pytest.param([at(0), at(1)], False, id="all wait"),
        pytest.param([], False, id="no report"),
    ],
)
def test_working_ranks_make_progress_unless_a_stuck_rank_will_block_them(
    statuses: list[RankStatus], *, expected: bool
) -> None:
    assert making_progress(statuses) is expected


def test_the_diagnosis_mentions_that_a_rank_is_busy_if_the_timeout_is_fixed() -> None:
    found = diagnose([at(0), at(1, READING, phase=Phase.FORWARD, **WORKING | {"exempt": False})])
    assert (found.rank, found.step) == (1, 120)
    assert "for 34 s, at data.py:12 in __getitem__, busy (it used 0.9 cores); rank 0 waits" in found.text


def test_ranks_are_in_different_groups_only_if_the_calls_of_all_are_known() -> None:
    apart = [at(rank, REDUCING, call=replace(call(4), group=rank)) for rank in range(2)]
    assert [one.rank for one in other_group(apart)] == [0]
    assert other_group([*apart, at(2, REDUCING)]) == []
