"""The termination message fits where Kubernetes cuts, and keeps what matters."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainer.outcome import termination
from trainer.outcome.failures import Failure
from trainer.outcome.termination import Ending

LIMIT = 4096  # bytes: Kubernetes cuts there


def ending(*, error: str = "ValueError: x", traceback: str = "", reason: str = "rank 3 failed") -> Ending:
    failure = Failure(rank=3, exit_code=1, error=error, traceback=traceback, time=1_700_000_000)
    return Ending(outcome="fatal", reason=reason, failure=failure)


def test_the_whole_message() -> None:
    assert json.loads(termination.message(ending(traceback="Traceback"), node_index=2)) == {
        "outcome": "fatal",
        "reason": "rank 3 failed",
        "rank": 3,
        "node": 2,
        "time": 1_700_000_000,
        "error": "ValueError: x",
        "traceback": "Traceback",
    }


@given(st.text(max_size=9000), st.text(max_size=9000), st.text(max_size=9000))
def test_it_always_fits_and_is_json(traceback: str, error: str, reason: str) -> None:
    data = termination.message(ending(traceback=traceback, error=error, reason=reason), node_index=0)
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


def test_a_place_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    termination.write(tmp_path / "absent" / "message", ending(), node_index=0)
    termination.write(None, ending(), node_index=0)
    termination.write(tmp_path / "message", ending(), node_index=0)
    assert json.loads((tmp_path / "message").read_bytes())["outcome"] == "fatal"
