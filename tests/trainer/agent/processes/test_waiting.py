"""The wait between two looks at a node's ranks ends as soon as there is something to see."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from kittrain.agent.processes.ranks import RankProcesses

FOREVER = 3600.0  # seconds: a wait that is not ended early lets the test time out
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")


def test_a_wait_ends_with_a_rank_and_with_what_else_can_be_read() -> None:
    ranks = RankProcesses()
    command = [sys.executable, "-c", "input()"]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    for one in started:
        ranks.add(one)
    began = time.monotonic()
    ranks.await_end(0.1)
    assert time.monotonic() >= began + 0.1, "neither has ended"

    started[0].communicate(b"\n")  # it was waited for already
    ranks.await_end(FOREVER)
    assert ranks.exit_codes() == [0, None]

    reader, writer = os.pipe()
    os.write(writer, b"x")
    ranks.await_end(FOREVER, also=reader)
    assert ranks.exit_codes() == [0, None]

    os.read(reader, 1)
    started[1].kill()
    ranks.await_end(FOREVER, also=reader)
    assert ranks.exit_codes() == [0, -9]
    os.close(reader)
    os.close(writer)
