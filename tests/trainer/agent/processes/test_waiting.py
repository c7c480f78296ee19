"""The waits for a node's ranks end as soon as there is something to see."""

from __future__ import annotations

import os
import signal
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


def test_ranks_that_ended_before_they_were_waited_for_are_not_waited_for() -> None:
    ranks = RankProcesses()
    for _ in range(2):
        ranks.add(ended := subprocess.Popen([sys.executable, "-c", ""]))
        ended.wait()
    ranks.await_end(FOREVER)
    began = time.monotonic()
    ranks.await_end(0.1)
    assert time.monotonic() >= began + 0.1, "none is left that could end"

    reader, writer = os.pipe()
    os.close(writer)
    ranks.await_end(FOREVER, also=reader)
    os.close(reader)


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_ranks_are_stopped_as_soon_as_they_end_and_killed_if_they_do_not() -> None:
    commands = ("pass", "print(flush=True); input()", DEAF)
    started = [
        subprocess.Popen([sys.executable, "-c", one], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        for one in commands
    ]
    ended, ends, deaf = started
    ended.wait()
    for one in (ends, deaf):
        assert one.stdout
        one.stdout.readline()
    all_of_them, willing = RankProcesses(), RankProcesses()
    for one in started:
        all_of_them.add(one)
    for one in (ended, ends):
        willing.add(one)
    willing.stop(FOREVER)
    assert all_of_them.exit_codes() == [0, -signal.SIGTERM, None]
    all_of_them.stop(0.1, but=[deaf.pid])
    assert all_of_them.exit_codes()[-1] is None
    all_of_them.stop(0.1)
    assert all_of_them.exit_codes() == [0, -signal.SIGTERM, -signal.SIGKILL]
