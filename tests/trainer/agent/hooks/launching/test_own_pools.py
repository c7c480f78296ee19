"""A pool that waits for a worker that was killed says so, once; one that works and ends says nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kittrain.outcome.rank_output import LOST_WORKER

SCRIPT = """
import multiprocessing, os, sys
from kittrain.agent.hooks.launching import own_pools

def work(number):
    if number == 3:
        os.kill(os.getpid(), int(sys.argv[1]))
    return number

if __name__ == "__main__":
    own_pools.watch()
    context = multiprocessing.get_context("fork")
    with context.Pool(2, maxtasksperchild=1) as pool:
        assert pool.map(work, [1, 2, 4, 5], chunksize=1) == [1, 2, 4, 5]
    with context.Pool(2) as pool:
        pool.apply_async(work, [3])
        sys.stdin.readline()
        assert pool.apply(work, [4]) == 4, "it goes on"
"""


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (37, "signal 37")])
def test_a_worker_that_is_killed_is_told_once(number: int, name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(int(number))], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stderr
        assert process.stderr.readline() == f"warning: {LOST_WORKER} ({name})\n"
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
