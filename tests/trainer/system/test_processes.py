"""The usage of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kittrain.system.processes import (
    Usage,
    children_of,
    has_lost_threads,
    ignores,
    is_exiting,
    signal_name,
    unread,
    usage,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a /proc to look at")


@contextmanager
def leader(script: str) -> Iterator[int]:
    """The leader of a session; it prints a line when it is set up, and may wait for one that does not come."""
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, 9)


def used(pid: int, least: Usage) -> Usage:
    """Wait until a process has used at least this much more than at first; returns its usage."""
    first = usage([pid])[pid]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = usage([pid])[pid]
        more = Usage(seconds=now.seconds - first.seconds, io_bytes=now.io_bytes - first.io_bytes, runnable=now.runnable)
        if more.seconds >= least.seconds and more.io_bytes >= least.io_bytes:
            return more
        time.sleep(0.02)
    raise AssertionError("it used less")


WORK = "while True: pass"
CHILD = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@pytest.mark.parametrize(
    "script",
    [
        f"print(flush=True)\n{WORK}",
        # A data loader worker or a compiler in its own session.
        (
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {CHILD!r}], start_new_session=True)\n"
            "print(flush=True)\nimport time; time.sleep(600)"
        ),
        # An orphan, which only the session identifies.
        (
            f"import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n        {WORK}\n    os._exit(0)\n"
            "os.wait()\nprint(flush=True)\ntime.sleep(600)"
        ),
        # Short-lived processes, one after the other.
        "import subprocess\nprint(flush=True)\nwhile True: subprocess.run(['true'])",
    ],
    ids=["itself", "its child", "its orphan", "ended children"],
)
def test_all_descendants_count(script: str) -> None:
    with leader(script) as pid:
        assert used(pid, Usage(seconds=0.1)).seconds >= 0.1


def test_read_bytes_count(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    script = (
        f"import time\nprint(flush=True)\nwhile True: open({str(tmp_path / 'data')!r}, 'rb').read(); time.sleep(0.1)"
    )
    with leader(script) as pid:
        used(pid, Usage(io_bytes=1 << 21))


def test_a_sleeping_process_uses_nothing_and_is_not_runnable() -> None:
    with leader("import time\nprint(flush=True)\ntime.sleep(600)") as pid:
        time.sleep(0.1)
        first = usage([pid])[pid]
        assert not first.runnable
        time.sleep(0.5)
        assert usage([pid])[pid].seconds <= first.seconds + 0.02
        assert usage([pid])[pid].io_bytes == first.io_bytes


def test_an_ended_process_is_left_out() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert usage([process.pid]) == {}


@pytest.mark.parametrize(
    ("child", "waits", "signal"),
    [
        ("os.kill(os.getpid(), 9)", False, 9),
        ("os.kill(os.getpid(), 9)", True, 0),
        ("os._exit(9)", False, 0),
        ("time.sleep(600)", False, 0),
    ],
)
def test_a_child_that_was_killed_and_not_waited_for_is_seen(child: str, *, waits: bool, signal: int) -> None:
    ended = "" if "sleep" in child else f"os.waitid(os.P_PID, pid, os.WEXITED{'' if waits else ' | os.WNOWAIT'})\n"
    script = f"import os, time\npid = os.fork()\nif not pid:\n    {child}\n{ended}print(flush=True)\ntime.sleep(600)"
    with leader(script) as pid:
        assert usage([pid])[pid].killed == signal


def test_a_signal_without_a_name_has_its_number() -> None:
    assert [signal_name(number) for number in (9, 37)] == ["SIGKILL", "signal 37"]


def test_a_process_that_has_exited_is_told_before_it_is_waited_for() -> None:
    with leader("print(flush=True); input()") as pid:
        assert not is_exiting(pid)
    ended = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    assert is_exiting(ended)
    os.waitpid(ended, 0)
    assert not is_exiting(ended), "there is no such process"


@pytest.mark.parametrize(
    ("handler", "ignored"), [("SIG_IGN", True), ("SIG_DFL", False), ("default_int_handler", False)]
)
def test_a_signal_that_a_process_ignores_is_known(handler: str, *, ignored: bool) -> None:
    with leader(f"import signal\nsignal.signal(15, signal.{handler})\nprint(flush=True); input()") as pid:
        assert ignores(pid, 15) == ignored
        assert not ignores(pid, 10)
    assert not ignores(pid, 15), "there is no such process"


WRITER = "subprocess.Popen([sys.executable, '-c', 'print(bytes(1 << 20))'], stdout={})"
CHILD = f"import subprocess, sys, time\nchild = {WRITER.format('subprocess.PIPE')}\n"
WAITS = "print(flush=True); input()"


def is_unread(pid: int, seconds: float) -> str:
    """Whether it becomes so within this time."""
    deadline = time.monotonic() + seconds
    while not unread(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return unread(pid)


def test_a_child_whose_output_its_parent_does_not_read_is_seen_to_wait() -> None:
    with leader(f"{CHILD}{WAITS}") as pid:
        assert is_unread(pid, 30) == "output"
    assert not unread(pid), "there is no such process"


def test_a_child_whose_output_is_read_later_is_not_seen_from_then_on() -> None:
    with leader(f"{CHILD}time.sleep(0.5); child.communicate()\n{WAITS}") as pid:
        assert not unread(pid)


def test_a_child_that_waits_for_another_reader_than_its_parent_is_not_seen() -> None:
    """Its output goes to a process beside it, which takes its time."""
    script = "import subprocess, sys\nreader = subprocess.Popen(['sleep', '60'], stdin=subprocess.PIPE)\n"
    script += f"{WRITER.format('reader.stdin')}\nreader.stdin.close()\n{WAITS}"
    with leader(script) as pid:
        assert not is_unread(pid, 1)


PUTS = """
import multiprocessing as mp, time
def puts(queue):
    queue.put(bytes(1 << 20))
queue = mp.get_context("fork").Queue()
mp.get_context("fork").Process(target=puts, args=(queue,)).start()
"""


def test_a_child_whose_queue_its_parent_does_not_read_is_seen_to_wait() -> None:
    """A thread of its own writes, and its end waits for that."""
    with leader(PUTS + WAITS) as pid:
        assert is_unread(pid, 30) == "queue"
    with leader(f"{PUTS}queue.get()\n{WAITS}") as pid:
        assert not is_unread(pid, 1)


FORKS = "import os, threading, time\nlock = threading.Lock()\n{}\npid = os.fork()\nif not pid:\n    {}\n" + WAITS
HOLDS = "threading.Thread(target=lambda: lock.acquire() and time.sleep(60), daemon=True).start(); time.sleep(0.2)"


@pytest.mark.parametrize(
    ("before", "does", "seconds"),
    [(HOLDS, "lock.acquire()", 30), (HOLDS, "time.sleep(60)", 1), ("", "input()", 1)],
)
def test_a_fork_that_waits_for_a_lock_of_a_thread_that_it_does_not_have(before: str, does: str, seconds: int) -> None:
    with leader(FORKS.format(before, does)) as pid:
        deadline = time.monotonic() + seconds
        (fork,) = children_of(pid)
        while not has_lost_threads(fork) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert has_lost_threads(fork) == (seconds > 1)
        assert not has_lost_threads(pid)
    assert not has_lost_threads(fork), "there is no such process"


def test_a_process_that_waits_for_a_thread_that_it_has_is_not_seen() -> None:
    script = f"import threading, time\nlock = threading.Lock()\n{HOLDS}\nprint(flush=True)\nlock.acquire()"
    with leader(script) as pid:
        time.sleep(0.5)
        assert not has_lost_threads(pid)
