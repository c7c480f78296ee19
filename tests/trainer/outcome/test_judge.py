"""Which failed rounds are followed by another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kittrain.outcome.failures import Budget, Failure
from kittrain.outcome.judge import EndedRound, Judge

ROUND = EndedRound(world=2, library_steps=0, script_steps=0, loaded=0)
STEPPED = replace(ROUND, script_steps=40)
OTHER = Failure(rank=0, exit_code=1, error="ValueError: a bad sample", time=1)
OF_CODE = Failure(
    rank=1,
    exit_code=1,
    error="AttributeError: 'Net' object has no attribute 'head'",
    traceback='  File "/a/train.py", line 3, in main\n',
    time=2,
)
MISSPELT = replace(OF_CODE, error="NameError: name 'los' is not defined")
NO_MODULE = replace(OF_CODE, error="ModuleNotFoundError: No module named 'timm'")


def judge(*rounds: tuple[Failure, EndedRound], most: int = 3, sent: Path | None = None) -> list[str]:
    """What each of several rounds is followed by."""
    judged = Judge(Budget(max_restarts=most), sent)
    verdicts = [judged.judge([failure], ended) for failure, ended in rounds]
    return ["restart" if one.restart else one.again or ("hopeless" if one.hopeless else "spent") for one in verdicts]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([(OTHER, ROUND)] * 5, ["restart"] * 3 + ["spent"] * 2),
        ([(OTHER, STEPPED)] * 4, ["restart"] * 3 + ["spent"]),
        ([(NO_MODULE, ROUND)], ["hopeless"]),
        ([(MISSPELT, ROUND)] * 2, ["restart", "hopeless"]),
        ([(OF_CODE, ROUND)] * 2, ["restart", "without a step"]),
        ([(OF_CODE, STEPPED)] * 2, ["restart", "after as many steps"]),
        ([(OF_CODE, STEPPED), (OTHER, STEPPED), (OF_CODE, STEPPED)], ["restart"] * 2 + ["after as many steps"]),
        ([(OF_CODE, STEPPED), (OF_CODE, replace(STEPPED, script_steps=41))], ["restart"] * 2),
        ([(OF_CODE, STEPPED), (OF_CODE, replace(STEPPED, world=3))], ["restart"] * 2),
        ([(OF_CODE, STEPPED), (OF_CODE, replace(STEPPED, loaded=7))], ["restart"] * 2),
        ([(OF_CODE, ROUND), (OF_CODE, replace(ROUND, library_steps=40))], ["restart"] * 2),
        ([(OF_CODE, replace(ROUND, library_steps=40))] * 2, ["restart", "without a step"]),  # resumed there, say
    ],
)
def test_what_follows_a_failed_round(rounds: list[tuple[Failure, EndedRound]], expected: list[str]) -> None:
    assert judge(*rounds) == expected


def test_a_failure_that_another_nodes_ranks_had_before_counts_as_the_first_time() -> None:
    judged = Judge(Budget(max_restarts=3), None)
    judged.note([OF_CODE], STEPPED)
    assert judged.judge([OF_CODE], STEPPED).again


def test_the_root_cause_is_judged_and_all_failures_are_noted() -> None:
    judged = Judge(Budget(max_restarts=3), None)
    assert judged.judge([OF_CODE, OTHER], STEPPED).cause == OTHER
    assert judged.judge([OF_CODE], STEPPED).again


def test_a_file_that_the_sent_folder_lacks_is_no_reason_to_try_again(tmp_path: Path) -> None:
    missing = replace(OTHER, error="FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'")
    assert judge((missing, ROUND), sent=tmp_path) == ["hopeless"]
    assert judge((missing, ROUND)) == ["restart"], "it may be on a volume that is mounted late"


def test_a_new_snapshot_makes_room_for_the_same_error_again(tmp_path: Path) -> None:
    judged = Judge(Budget(max_restarts=1, snapshot_dir=tmp_path), None)
    assert judged.judge([OF_CODE], STEPPED).restart
    (tmp_path / "step-00000040-g0001").mkdir()
    assert judged.judge([OF_CODE], STEPPED).restart
    assert not judged.judge([OF_CODE], STEPPED).restart


def test_a_hang_counts_once_it_repeats_at_a_step() -> None:
    hang = replace(OTHER, error="hang: rank 1 has taken no step for 900 s")
    hung = replace(ROUND, library_steps=7, hung_at=7)
    assert judge((hang, hung), (hang, hung), (hang, hung), most=1) == ["restart", "restart", "spent"]
    assert judge((hang, hung), (hang, replace(hung, hung_at=9)), (hang, hung), most=1) == ["restart"] * 3


def test_a_departure_is_charged() -> None:
    judged = Judge(Budget(max_restarts=1), None)
    left = replace(OTHER, error="left the others with exit code 0")
    verdicts = [judged.judge_departure(left, script_steps=9, loaded=0) for _ in range(2)]
    assert [one.restart for one in verdicts] == [True, False]
    assert verdicts[0].cause == left


MISMATCH = Failure(
    rank=1,
    exit_code=-6,
    error="killed by SIGABRT at train.py:12 in evaluate: op.preamble.length <= op.nbytes. 2764 vs 4.",
    time=3,
)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([(MISMATCH, replace(STEPPED, elsewhere="rank 0 was at a.py:1"))], ["rank 0 was at a.py:1"]),
        ([(MISMATCH, replace(STEPPED, before="rank 2 was at a.py:2"))], [""]),  # that was of another failure
        ([(MISMATCH, STEPPED), (MISMATCH, replace(STEPPED, before="rank 2 was there"))], ["", "rank 2 was there"]),
        ([(OTHER, STEPPED), (MISMATCH, replace(STEPPED, before="rank 2 was at a.py:2"))], ["", ""]),
        ([(OTHER, replace(STEPPED, elsewhere="rank 0 was at a.py:1"))], [""]),  # its own error explains it
    ],
)
def test_a_mismatch_is_explained_by_where_a_rank_was_that_lost_the_failed_one_then_or_the_time_before(
    rounds: list[tuple[Failure, EndedRound]], expected: list[str]
) -> None:
    judged = Judge(Budget(max_restarts=3), None)
    assert [judged.judge([failure], ended).cause.elsewhere for failure, ended in rounds] == expected
