"""The cause of a hang, in one sentence, from where each rank stands."""

from __future__ import annotations

from typing import Any

import pytest

from kittrain.rendezvous.diagnosis import Account, cause, ranges, works
from kittrain.rendezvous.stacks import Place
from kittrain.system.heartbeat import Phase

GRADIENTS = Place(wait="the gradients' all-reduce", line="train.py:40 in train")
READING = Place(line="data.py:12 in __getitem__")
REDUCING = Place(wait="all_reduce", line="train.py:31 in loss")


def at(rank: int, place: Place = GRADIENTS, *, phase: Phase = Phase.BACKWARD, step: int = 120, **more: Any) -> Account:
    facts: dict[str, Any] = {"still": 34.2, "answers": True, "frozen": False, "node": f"node {rank}, pod run-{rank}"}
    return Account(rank=rank, step=step, phase=phase, place=place, **facts | more)


@pytest.mark.parametrize(
    ("accounts", "rank", "text"),
    [
        pytest.param(
            [at(0), at(1), at(2, READING, phase=Phase.DATA), at(3)],
            2,
            "rank 2 (node 2, pod run-2) has been in data loading of step 121 for 34 s, at data.py:12 in __getitem__; "
            "ranks 0-1, 3 wait in the gradients' all-reduce",
            id="outside of the collective",
        ),
        pytest.param(
            [at(0, step=121), at(1, step=121), at(2, Place(), answers=False, frozen=True, phase=Phase.UPDATING)],
            2,
            "rank 2 (node 2, pod run-2) has been stopped (by SIGSTOP, or a debugger) in the optimizer of step 121 for "
            "34 s; ranks 0-1 wait in the gradients' all-reduce",
            id="frozen",
        ),
        pytest.param(
            [at(0), at(1, Place(), answers=False, phase=Phase.SAVING)],
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
            [at(0), at(1, REDUCING, phase=Phase.FORWARD)],
            0,
            "rank 0 (node 0, pod run-0) has been in the gradients' all-reduce of step 121 for 34 s, at train.py:40 in "
            "train, which not all ranks have entered; rank 1 waits in all_reduce",
            id="of two, the one that has gone further",
        ),
        pytest.param(
            [at(0), at(1)],
            0,
            "ranks 0-1 have been in the gradients' all-reduce of step 121 for 34 s, at train.py:40 in train, though "
            "all have entered it: the network, or a device?",
            id="everyone is there",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.DATA)],
            0,
            "rank 0 (node 0, pod run-0) has been in data loading of step 121 for 34 s, at data.py:12 in __getitem__",
            id="alone",
        ),
    ],
)
def test_the_sentence_names_who_keeps_the_others_waiting(accounts: list[Account], rank: int, text: str) -> None:
    found = cause(accounts)
    assert (found.rank, found.text) == (rank, f"hang: {text}")


def test_many_ranks_are_told_as_ranges() -> None:
    assert ranges([7, 0, 1, 2, 5]) == "0-2, 5, 7"


WORK: dict[str, Any] = {"busy": True, "cores": 0.93, "allowed": True}


@pytest.mark.parametrize(
    ("accounts", "expected"),
    [
        pytest.param([at(0), at(1, READING, phase=Phase.FORWARD, **WORK)], True, id="the others wait for it"),
        pytest.param([at(0, READING, phase=Phase.DATA, **WORK)] * 2, True, id="all compute"),
        pytest.param([at(0, **WORK), at(1, **WORK)], True, id="all compute in the backward pass"),
        pytest.param([at(0, REDUCING, **WORK), at(1, REDUCING, **WORK)], False, id="all spin in a collective"),
        pytest.param([at(0, REDUCING, **WORK), at(1, READING, phase=Phase.DATA)], False, id="the others spin"),
        pytest.param(
            [at(0, READING, phase=Phase.FORWARD, step=121, **WORK), at(1, READING, phase=Phase.DATA)],
            False,
            id="one goes on without one that is stuck",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.FORWARD, **WORK), at(1, READING, phase=Phase.DATA)],
            False,
            id="within a step, too",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.FORWARD, **WORK), at(1, READING, phase=Phase.FORWARD)],
            True,
            id="the other one waits for it in a way of its own",
        ),
        pytest.param(
            [at(0, READING, phase=Phase.AGREEING, **WORK), at(1, READING, phase=Phase.DATA)],
            True,
            id="a step is counted before its last phase",
        ),
        pytest.param(
            [at(0, READING, **WORK), at(1, Place(), answers=False, frozen=True)], False, id="one is stopped for good"
        ),
        pytest.param([at(0), at(1, READING, **WORK | {"allowed": False})], False, id="the job says how long"),
        pytest.param([at(0), at(1)], False, id="all wait"),
        pytest.param([], False, id="nobody has told"),
    ],
)
def test_ranks_that_work_do_not_hang_unless_others_will_keep_them_waiting(
    accounts: list[Account], *, expected: bool
) -> None:
    assert works(accounts) is expected


def test_that_a_rank_was_busy_is_told_where_a_step_may_not_take_longer_all_the_same() -> None:
    told = cause([at(0), at(1, READING, phase=Phase.FORWARD, **WORK | {"allowed": False})])
    assert (told.rank, told.step) == (1, 120)
    assert "for 34 s, at data.py:12 in __getitem__, busy (it used 0.9 cores); rank 0 waits" in told.text
