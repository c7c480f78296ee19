"""Who is who among the processes of a node, and that the right one is struck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kittrain.strike import SIGNALS, processes, rank_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who is who stands in /proc")

# A rank, as far as it can be seen from outside, and what it has started: both write to its pipe.
RANK = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '60'])"]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[dict[int, int]]:
    """Two ranks of this process, as if it were their agent: process ids by rank."""
    started = {}
    for rank in (3, 4):
        os.mkfifo(tmp_path / f"{rank}.pipe")
        pipe = os.open(tmp_path / f"{rank}.pipe", os.O_RDWR)
        started[rank] = subprocess.Popen(RANK, stdout=pipe, stderr=pipe, start_new_session=True)
        os.close(pipe)
    yield {rank: process.pid for rank, process in started.items()}
    for process in started.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def agents() -> Iterator[tuple[int, int]]:
    """An init, as far as it can be seen from outside, and below it what passes for an agent: process ids."""
    agent = [sys.executable, "-c", "print(flush=True); input()", "-m", "kittrain.agent", "--", "train.py"]
    script = 'trap "" TERM; "$@"; exit'  # the trap keeps the shell from becoming what it runs
    init = subprocess.Popen(["sh", "-c", script, "init", *agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert init.stdout
    init.stdout.readline()
    (child,) = (process.pid for process in processes() if process.parent == init.pid)
    yield init.pid, child
    init.communicate(b"\n")


def test_a_rank_is_known_by_its_pipe(ranks: dict[int, int]) -> None:
    assert {rank: rank_of(os.getpid(), rank) for rank in ranks} == ranks


def test_a_rank_that_is_not_there_is_an_error(ranks: dict[int, int]) -> None:
    with pytest.raises(SystemExit, match="no rank 5 runs here now"):
        rank_of(os.getpid(), 5)
    with pytest.raises(SystemExit, match="no rank 3 runs here now"):
        rank_of(ranks[4], 3)


def test_the_signal_arrives(ranks: dict[int, int]) -> None:
    told = strike("STOP", "--rank", "4", "--agent", str(os.getpid()))
    assert told.stdout == f"SIGSTOP to rank 4, process {ranks[4]}\n"
    _, status = os.waitpid(ranks[4], os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    strike("CONT", "--rank", "4", "--agent", str(os.getpid()))


def test_without_an_agent_there_is_nobody_to_strike(ranks: dict[int, int]) -> None:
    told = strike("KILL", "--rank", "4", "--agent", str(ranks[3]))
    assert (told.returncode, told.stderr) == (1, "no rank 4 runs here now\n")


def test_an_init_that_starts_the_agent_is_no_agent(agents: tuple[int, int]) -> None:
    init, agent = agents
    found = {process.pid: process for process in processes()}
    assert not found[init].is_agent
    assert found[agent].is_agent
    assert found[agent].parent == init


def test_its_signals_have_these_names() -> None:
    assert all(f"SIG{name}" in signal.Signals.__members__ for name in SIGNALS)


def strike(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "kittrain.strike", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)
