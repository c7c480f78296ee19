"""Where a rank was as it lost another one."""

from __future__ import annotations

import pytest

from kittrain.outcome.elsewhere import where_lost
from kittrain.outcome.failures import Failure

LOST = "RuntimeError: [/torch/gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:4711"
TORCH = '  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 630, in backward\n'


def failure(rank: int, traceback: str, *, error: str = LOST, time: int = 5) -> Failure:
    return Failure(rank=rank, exit_code=1, error=error, traceback=traceback, time=time)


def frame(file: str, line: int) -> str:
    return f'  File "{file}", line {line}, in main\n    loss.backward()\n'


@pytest.mark.parametrize(
    ("traceback", "expected"),
    [
        (frame("/code/train.py", 24) + TORCH, "rank 1 was at train.py:24"),
        (frame("/code/train.py", 9) + frame("/code/my net/loop.py", 31) + TORCH, "rank 1 was at loop.py:31"),
        (frame("train.py", 24), "rank 1 was at train.py:24"),
        (frame("/opt/kittrain/agent/processes/worker.py", 142) + TORCH, ""),
        ('  File "<frozen runpy>", line 88, in _run_code\n' + TORCH, ""),
        ("", ""),
    ],
)
def test_the_innermost_line_of_the_script_tells_where_a_rank_was(traceback: str, expected: str) -> None:
    assert where_lost([failure(1, traceback)]) == expected


def test_only_a_rank_that_lost_its_peers_is_told_and_the_first_one_of_those_with_a_line() -> None:
    line = frame("/code/train.py", 24)
    assert where_lost([failure(0, line, error="ValueError: a bad sample")]) == ""
    told = [failure(3, line, time=4), failure(2, line), failure(1, "", time=3)]
    assert where_lost(told) == "rank 3 was at train.py:24"
    assert where_lost([]) == ""
