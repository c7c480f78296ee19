"""Steps of a trace that begin and end in a call of an optimizer, as torch writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kittrain.agent.inside.trace import calls, nested


def event(name: str, ts: str, dur: str, *, lines: bool, tid: str = "7") -> str:
    """One as torch writes it: newer versions a line for each field."""
    parts = [f'"ph": "X", "cat": "user_annotation", "name": "{name}"', f'"pid": 5, "tid": {tid}']
    parts += [f'"ts": {ts}, "dur": {dur}', '"args": {\n      "External id": 3\n    }']
    text = ",\n    ".join(parts)
    return "{\n    " + (text.replace(", ", ",\n    ") if lines else text) + "\n  }"


def trace(*events: str) -> bytes:
    return ('{\n"schemaVersion": 1,\n"traceEvents": [\n  ' + ",\n  ".join(events) + "\n]}\n").encode()


def moved(text: bytes) -> dict[str, tuple[float, float]]:
    lines = text.splitlines(keepends=True)
    found: dict[str, Any] = json.loads(b"".join(nested(lines, calls(lines))))
    return {one["name"]: (one["ts"], one["dur"]) for one in found["traceEvents"]}


@pytest.mark.parametrize("lines", [True, False])
def test_a_step_is_from_the_end_of_one_call_to_the_end_of_the_next(lines: bool) -> None:  # noqa: FBT001  a case's value
    text = trace(
        event("Optimizer.step#SGD.step", "4913581650500.001", "10.500", lines=lines),
        event("ProfilerStep#1", "4913581650505.125", "100", lines=lines),
        event("aten::mm", "4913581650530", "2.5", lines=lines),
        event("Optimizer.step#SGD.step#2", "4913581650600.250", "20", lines=lines),
        event("ProfilerStep#2", "4913581650605.125", "50", lines=lines),
    )
    assert moved(text) == {
        "Optimizer.step#SGD.step": (4913581650500.001, 10.5),
        "ProfilerStep#1": (4913581650510.505, 109.747),
        "aten::mm": (4913581650530, 2.5),
        "Optimizer.step#SGD.step#2": (4913581650600.25, 20),
        "ProfilerStep#2": (4913581650620.254, 34.871),  # it ends in no call
    }


def test_a_step_of_another_thread_and_one_without_times_stay() -> None:
    text = trace(
        event("Optimizer.step#SGD.step", "100", "10", lines=True),
        event("ProfilerStep#1", "105", "50", lines=True, tid='"stream 7"'),
        '{"name": "ProfilerStep#2", "ph": "i"}',
    )
    lines = text.splitlines(keepends=True)
    assert b"".join(nested(lines, calls(lines))) == text
