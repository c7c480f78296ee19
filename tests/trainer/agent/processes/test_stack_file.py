"""Where the forks of a rank are, which it waits for: real processes, which print their stacks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kittrain.agent.processes import stack_file
from kittrain.agent.rendezvous.stacks import line_of_fork
from kittrain.system.processes import children_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are found in /proc")

RANK = """
import multiprocessing, os, subprocess, sys, time
from kittrain.agent.processes import stack_file

def busy():
    os.write(1, b"there\\n")
    time.sleep(600)

def main():
    stack_file.register()
    for what in sys.argv[1:]:
        if what == "idle":
            pool = multiprocessing.Pool(1)
            pool.apply(os.write, (1, b"there\\n"))
        elif what == "program":
            subprocess.Popen([sys.executable, "-c", "import os, time; os.write(1, b'there\\\\n'); time.sleep(600)"])
        else:
            multiprocessing.get_context("spawn" if what == "spawned" else "fork").Process(target=busy).start()
    time.sleep(600)

if __name__ == "__main__":
    main()
"""


@contextmanager
def running(folder: Path, *forks: str) -> Iterator[tuple[int, Path]]:
    """The process id and the file of a rank, once its forks are where they stay."""
    (folder / "train.py").write_text(RANK)
    heartbeat = folder / "0.heartbeat"
    with subprocess.Popen(
        [sys.executable, str(folder / "train.py"), *forks],
        env={**os.environ, "KIT_HEARTBEAT_FILE": str(heartbeat)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as rank:
        try:
            assert rank.stdout
            for _ in forks:
                assert rank.stdout.readline() == "there\n"
            yield rank.pid, stack_file.path_of(heartbeat)
        finally:
            os.killpg(rank.pid, signal.SIGKILL)


def lines(pid: int, file: Path) -> list[str]:
    return [line_of_fork(printed) for _, printed in stack_file.of_forks(children_of(pid), file)]


def test_a_fork_tells_where_it_is_and_one_that_waits_for_work_tells_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "idle", "busy") as (pid, file):
        assert lines(pid, file) == ["", "train.py:7 in busy"]


@pytest.mark.parametrize("other", ["program", "spawned"])
def test_what_was_not_forked_from_the_rank_is_not_asked_as_that_would_end_it(tmp_path: Path, other: str) -> None:
    with running(tmp_path, other) as (pid, file):
        before = children_of(pid)
        assert lines(pid, file) == []
        assert children_of(pid) == before


def test_a_fork_that_is_stopped_does_not_hold_up_the_agent(tmp_path: Path) -> None:
    with running(tmp_path, "busy") as (pid, file):
        (fork,) = children_of(pid)
        os.kill(fork, signal.SIGSTOP)
        assert lines(pid, file) == []
        os.kill(fork, signal.SIGCONT)


def test_no_more_than_a_few_are_asked(tmp_path: Path) -> None:
    with running(tmp_path, *["busy"] * (stack_file.MOST_FORKS + 2)) as (pid, file):
        assert lines(pid, file) == ["train.py:7 in busy"] * stack_file.MOST_FORKS
