"""The stacks of ranks are read while they sleep, compute, are stopped, or have become another program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from kitjob import typed
from kitjob.stacks import RankStack
from kittrain.agent.inside.stacks import stacks, threads
from tests.trainer.ranks import StartRank

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

READY = "import os, time; os.write(int(os.environ['READY']), b'.')\n"
SLEEPS = READY + "def rest():\n    time.sleep(600)\nrest()\n"
SPINS = READY + "while True:\n    pass\n"
THREADS = "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n" + SLEEPS
OTHER = "import os, signal, time\n" + READY + "os.execvp('sleep', ['sleep', '600'])\n"
DUMP = """\
Thread 0x00007f01 [loader] (most recent call first):
  File "/a/loader.py", line 3 in load
  File "/a/loader.py", line 9 in run

Current thread 0x00007f02 (most recent call first):
  File "/a/train.py", line 7 in <module>
""".splitlines()


def test_each_rank_tells_its_line_its_threads_and_its_phase(start_rank: StartRank) -> None:
    ranks = {3: start_rank(3, SLEEPS), 4: start_rank(4, SPINS), 5: start_rank(5, THREADS)}
    for _ in range(2):  # an answer has nothing of the one before
        sleeps, spins, more = stacks(ranks)
        assert (sleeps.rank, sleeps.pid, sleeps.line, sleeps.note) == (3, ranks[3], "3.py:3 in rest", "")
        assert sleeps.phase == "starting"
        assert [frame.function for frame in sleeps.threads[0].frames] == ["rest", "<module>"], "the user's only"
        assert spins.line.startswith("4.py:")
        assert [thread.main for thread in more.threads] == [True, False]


def test_a_rank_with_more_threads_than_are_printed_tells_where_its_main_one_is(start_rank: StartRank) -> None:
    many = THREADS.partition(SLEEPS)[0].replace("threading.Thread", "for _ in range(120): threading.Thread", 1)
    (found,) = stacks({3: start_rank(3, many.replace("; for", "\nfor") + SLEEPS)})
    assert found.line.endswith("in rest"), found.note
    assert [frame.function for frame in found.threads[0].frames] == ["rest", "<module>"]
    assert (found.threads[0].main, len(found.threads)) == (True, 101)


def test_the_rank_prints_nothing_and_goes_on(start_rank: StartRank, tmp_path: Path) -> None:
    pid = start_rank(0, SLEEPS)
    pipe = os.open(tmp_path / "0.pipe", os.O_RDWR | os.O_NONBLOCK)
    assert stacks({0: pid})[0].line
    with pytest.raises(BlockingIOError):
        os.read(pipe, 1)
    os.close(pipe)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)


def test_a_rank_that_cannot_answer_says_why_and_lives(start_rank: StartRank) -> None:
    stopped, other = start_rank(0, SLEEPS), start_rank(1, OTHER)
    os.kill(stopped, signal.SIGSTOP)
    os.waitpid(stopped, os.WUNTRACED)
    for _ in count():
        if Path(f"/proc/{other}/comm").read_text() == "sleep\n":
            break
    first, second = stacks({0: stopped, 1: other})
    assert first.note == "it is stopped, by SIGSTOP or a debugger"
    assert second.note.startswith("it offers no stacks: ")
    assert not first.threads
    assert os.waitpid(other, os.WNOHANG) == (0, 0), "the signal would have ended it"


def test_the_tool_prints_the_ranks_of_each_agent(start_rank: StartRank) -> None:
    start_rank(7, SLEEPS)
    command = [sys.executable, "-P", "-m", "kittrain.agent.inside.stacks", "--agent", str(os.getpid()), "--agent", "1"]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    (found,), none = typed.load(list[tuple[RankStack, ...]], printed)
    assert (found.rank, found.line, none) == (7, "7.py:3 in rest", ())
    assert json.loads(printed)[0][0]["threads"][0]["main"]


def test_the_answer_to_somebody_else_is_left_out() -> None:
    main, other = threads(DUMP)
    assert (main.main, main.frames[0].line, other.name, len(other.frames)) == (True, 7, "loader", 2)
    assert threads([*DUMP[-2:], *DUMP, *DUMP]) == (main, other)


def test_a_rank_is_named_in_lists_of_processes_and_its_command_line_stays(start_rank: StartRank) -> None:
    process = Path(f"/proc/{start_rank(12, SLEEPS)}")
    assert (process / "comm").read_text() == "kit-rank-12\n"
    assert (process / "cmdline").read_bytes().split(b"\0")[4].endswith(b"12.py")
