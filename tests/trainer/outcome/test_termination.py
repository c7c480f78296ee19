"""The termination message fits Kubernetes' limit, and keeps what matters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kitjob import typed
from kitjob.report import Termination
from kittrain.outcome import termination
from kittrain.outcome.causes import cause_of
from kittrain.outcome.failures import Failure
from kittrain.outcome.termination import Ending
from kittrain.system.texts import kept_error, kept_traceback

LIMIT = 4096  # bytes: Kubernetes truncates there


def ending(
    *, error: str = "ValueError: x", traceback: str = "", reason: str = "rank 3 failed", lines: Sequence[str] = ()
) -> Ending:
    failure = Failure(rank=3, exit_code=1, error=error, traceback=traceback, lines=tuple(lines), time=1_700_000_000)
    return Ending(outcome="fatal", reason=reason, failure=failure)


def test_the_whole_message() -> None:
    end = ending(error="MemoryError: ", traceback="Traceback", lines=["a", "b"])
    told = {
        "outcome": "fatal",
        "reason": "rank 3 failed",
        "rank": 3,
        "node": 2,
        "time": 1_700_000_000,
        "error": "MemoryError: ",
        "fix": cause_of("MemoryError: ").fix,
        "code": "out-of-memory",
        "elsewhere": "",
        "traceback": "Traceback",
        "lines": ["a", "b"],
        "note": "",
    }
    message = termination.message(end, node_index=2)
    assert json.loads(message) == told
    assert typed.encode(typed.load(Termination, message)) == told, "as kitctl reads it"


@given(st.text(max_size=9000), st.text(max_size=9000), st.text(max_size=9000), st.lists(st.text(max_size=500)))
def test_it_always_fits_and_is_json(traceback: str, error: str, reason: str, lines: list[str]) -> None:
    data = termination.message(ending(traceback=traceback, error=error, reason=reason, lines=lines), node_index=0)
    assert len(data) <= LIMIT
    assert json.loads(data)["rank"] == 3


def test_a_long_traceback_keeps_its_end_and_the_other_texts() -> None:
    frames = "".join(f'  File "train.py", line {number}, in step\n' for number in range(500))
    data = termination.message(ending(traceback=frames + "ValueError: x"), node_index=0)
    content = json.loads(data)
    assert len(data) <= LIMIT
    assert content["traceback"].endswith("line 499, in step\nValueError: x")
    assert len(content["traceback"]) > LIMIT // 2
    assert (content["error"], content["reason"]) == ("ValueError: x", "rank 3 failed")


def test_last_lines_are_dropped_first_if_there_is_a_traceback() -> None:
    lines = [f"{number} " + "é" * 190 for number in range(8)]
    content = json.loads(termination.message(ending(lines=lines), node_index=0))
    assert content["lines"] == lines
    content = json.loads(termination.message(ending(traceback="x" * 3000, lines=lines), node_index=0))
    assert content["traceback"] == "x" * 3000
    assert content["lines"] == lines[-len(content["lines"]) :]


def test_only_the_failed_node_logs_the_reason_in_full() -> None:
    own = ending(lines=["a"])
    other = termination.as_fatal(replace(own, node=1))
    assert (other.reason, other.failure) == (own.reason, own.failure)
    assert own.summary == "fatal: rank 3 failed"
    assert other.summary == "fatal: node 1 has failed for good"
    assert Ending(outcome="done", reason="well", note="rank 0 printed a traceback").summary.endswith("a traceback")
    assert Ending(outcome="done", reason="well", note="rank 0 printed last: bye").summary == "done: well", "as above it"


def test_a_message_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    termination.write(tmp_path / "absent" / "message", ending(), node_index=0)
    termination.write(None, ending(), node_index=0)
    termination.write(tmp_path / "message", ending(), node_index=0)
    assert json.loads((tmp_path / "message").read_bytes())["outcome"] == "fatal"


def test_a_deep_traceback_keeps_the_users_call_and_a_long_error_leaves_room_for_it() -> None:
    calls = ['  File "train.py", line 9, in <module>', "    main(parse())"]
    deep = [
        "Traceback (most recent call last):",
        *calls,
        *['  File "train.py", line 3, in walk', "    walk(n + 1)"] * 2000,
    ]
    traceback = kept_traceback("\n".join([*deep, f"ValueError: {'y' * 1_000_000}"]))
    end = ending(error=kept_error(f"ValueError: {'y' * 1_000_000}"), traceback=traceback)
    data = termination.message(end, node_index=0)
    content = json.loads(data)
    assert len(data) <= LIMIT
    first, *lines = content["traceback"].split("\n")
    assert [first, *lines[:2]] == deep[:3]
    assert [line for line in lines if line.startswith("  [... ")]
    assert lines[-1].startswith("ValueError: yyy"), "a whole line, not its end"
    assert 500 < len(content["error"]) < 1000
