"""The termination message fits where Kubernetes cuts, and keeps what matters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kittrain.outcome import termination
from kittrain.outcome.causes import cause_of
from kittrain.outcome.failures import Failure
from kittrain.outcome.termination import Ending

LIMIT = 4096  # bytes: Kubernetes cuts there


def ending(
    *, error: str = "ValueError: x", traceback: str = "", reason: str = "rank 3 failed", lines: Sequence[str] = ()
) -> Ending:
    failure = Failure(rank=3, exit_code=1, error=error, traceback=traceback, lines=tuple(lines), time=1_700_000_000)
    return Ending(outcome="fatal", reason=reason, failure=failure)


def test_the_whole_message() -> None:
    told = ending(error="MemoryError: ", traceback="Traceback", lines=["a", "b"])
    assert json.loads(termination.message(told, node_index=2)) == {
        "outcome": "fatal",
        "reason": "rank 3 failed",
        "rank": 3,
        "node": 2,
        "time": 1_700_000_000,
        "error": "MemoryError: ",
        "fix": cause_of("MemoryError: ").fix,
        "traceback": "Traceback",
        "lines": ["a", "b"],
    }


@given(st.text(max_size=9000), st.text(max_size=9000), st.text(max_size=9000), st.lists(st.text(max_size=500)))
def test_it_always_fits_and_is_json(traceback: str, error: str, reason: str, lines: list[str]) -> None:
    data = termination.message(ending(traceback=traceback, error=error, reason=reason, lines=lines), node_index=0)
    assert len(data) <= LIMIT
    assert json.loads(data)["rank"] == 3


def test_a_long_traceback_keeps_its_end_and_all_else() -> None:
    frames = "".join(f'  File "train.py", line {number}, in step\n' for number in range(500))
    data = termination.message(ending(traceback=frames + "ValueError: x"), node_index=0)
    told = json.loads(data)
    assert len(data) <= LIMIT
    assert told["traceback"].endswith("line 499, in step\nValueError: x")
    assert len(told["traceback"]) > LIMIT // 2
    assert (told["error"], told["reason"]) == ("ValueError: x", "rank 3 failed")


def test_last_lines_make_room_for_the_traceback_and_are_told_in_full_without_one() -> None:
    lines = [f"{number} " + "é" * 190 for number in range(8)]
    told = json.loads(termination.message(ending(lines=lines), node_index=0))
    assert told["lines"] == lines
    told = json.loads(termination.message(ending(traceback="x" * 3000, lines=lines), node_index=0))
    assert told["traceback"] == "x" * 3000
    assert told["lines"] == lines[-len(told["lines"]) :]


def test_what_ends_all_nodes_is_told_in_full_by_the_one_that_failed() -> None:
    own = ending(lines=["a"])
    other = termination.heard(replace(own, node=1))
    assert (other.reason, other.failure) == (own.reason, own.failure)
    assert own.words == "fatal: rank 3 failed"
    assert other.words == "fatal: node 1 has failed for good"


def test_a_place_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    termination.write(tmp_path / "absent" / "message", ending(), node_index=0)
    termination.write(None, ending(), node_index=0)
    termination.write(tmp_path / "message", ending(), node_index=0)
    assert json.loads((tmp_path / "message").read_bytes())["outcome"] == "fatal"
