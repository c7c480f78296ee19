"""What real processes use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kittrain.system.processes import Usage, usage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a /proc to look at")


@contextmanager
def leader(script: str) -> Iterator[int]:
    """A process of a session of its own, which says when it has come to where it stays."""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, 9)


def used(pid: int, least: Usage) -> Usage:
    """What a process uses, once that is at least so much more than at the first look."""
    first = usage([pid])[pid]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = usage([pid])[pid]
        more = Usage(seconds=now.seconds - first.seconds, moved=now.moved - first.moved, wanting=now.wanting)
        if more.seconds >= least.seconds and more.moved >= least.moved:
            return more
        time.sleep(0.02)
    raise AssertionError("it used less")


WORK = "while True: pass"
CHILD = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@pytest.mark.parametrize(
    "script",
    [
        f"print(flush=True)\n{WORK}",
        # A data loader's worker, or a compiler, that was started in a session of its own.
        (
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {CHILD!r}], start_new_session=True)\n"
            "print(flush=True)\nimport time; time.sleep(600)"
        ),
        # One whose parent has ended: nobody is left but the session.
        (
            f"import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n        {WORK}\n    os._exit(0)\n"
            "os.wait()\nprint(flush=True)\ntime.sleep(600)"
        ),
        # Short-lived ones, one after the other.
        "import subprocess\nprint(flush=True)\nwhile True: subprocess.run(['true'])",
    ],
    ids=["itself", "its child", "its orphan", "ended children"],
)
def test_all_that_was_started_counts(script: str) -> None:
    with leader(script) as pid:
        assert used(pid, Usage(seconds=0.1)).seconds >= 0.1


def test_bytes_that_are_read_count(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    script = (
        f"import time\nprint(flush=True)\nwhile True: open({str(tmp_path / 'data')!r}, 'rb').read(); time.sleep(0.1)"
    )
    with leader(script) as pid:
        used(pid, Usage(moved=1 << 21))


def test_one_that_sleeps_uses_nothing_and_wants_nothing() -> None:
    with leader("import time\nprint(flush=True)\ntime.sleep(600)") as pid:
        time.sleep(0.1)
        first = usage([pid])[pid]
        assert not first.wanting
        time.sleep(0.5)
        assert usage([pid])[pid].seconds <= first.seconds + 0.02
        assert usage([pid])[pid].moved == first.moved


def test_one_that_has_ended_is_left_out() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert usage([process.pid]) == {}
