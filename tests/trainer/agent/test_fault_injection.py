"""Fault injection finds the agent's and the ranks' processes, and signals the right one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kittrain.agent.fault_injection import SIGNALS, processes, rank_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

# Looks like a rank from outside: it writes to its pipe, and so does the process that it starts.
RANK = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '60'])"]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[dict[int, int]]:
    """Two ranks whose agent is this process: process ids by rank."""
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
    """A container's init and its child, which looks like an agent: their process ids."""
    agent = [sys.executable, "-c", "print(flush=True); input()", "-m", "kittrain.agent", "--", "train.py"]
    script = 'trap "" TERM; "$@"; exit'  # the trap keeps the shell from exec-ing the command
    init = subprocess.Popen(["sh", "-c", script, "init", *agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert init.stdout
    init.stdout.readline()
    (child,) = (process.pid for process in processes() if process.parent == init.pid)
    yield init.pid, child
    init.communicate(b"\n")


def test_a_rank_is_found_by_its_pipe(ranks: dict[int, int]) -> None:
    assert {rank: rank_of(os.getpid(), rank) for rank in ranks} == ranks


def test_an_unknown_rank_is_an_error(ranks: dict[int, int]) -> None:
    with pytest.raises(SystemExit, match="rank 5 does not run here"):
        rank_of(os.getpid(), 5)
    with pytest.raises(SystemExit, match="rank 3 does not run here"):
        rank_of(ranks[4], 3)


def test_the_signal_is_sent(ranks: dict[int, int]) -> None:
    done = inject("STOP", "--rank", "4", "--agent", str(os.getpid()))
    assert done.stdout == f"SIGSTOP to rank 4, process {ranks[4]}\n"
    _, status = os.waitpid(ranks[4], os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    inject("CONT", "--rank", "4", "--agent", str(os.getpid()))


def test_a_process_that_is_no_agent_has_no_ranks(ranks: dict[int, int]) -> None:
    done = inject("KILL", "--rank", "4", "--agent", str(ranks[3]))
    assert (done.returncode, done.stderr) == (1, "rank 4 does not run here\n")


def test_an_init_that_starts_the_agent_is_not_an_agent(agents: tuple[int, int]) -> None:
    init, agent = agents
    found = {process.pid: process for process in processes()}
    assert not found[init].is_agent
    assert found[agent].is_agent
    assert found[agent].parent == init


def test_the_supervisor_of_a_pod_is_not_an_agent() -> None:
    program = (
        "from kittrain.system.child_processes import SUPERVISOR, set_own_name;"
        "set_own_name(SUPERVISOR); print(flush=True); input()"
    )
    command = [sys.executable, "-c", program, "-m", "kittrain.agent", "--", "train.py"]
    supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert supervisor.stdout
    supervisor.stdout.readline()
    assert [process.is_agent for process in processes() if process.pid == supervisor.pid] == [False]
    supervisor.communicate(b"\n")


def test_the_signal_names_exist() -> None:
    assert all(f"SIG{name}" in signal.Signals.__members__ for name in SIGNALS)


def inject(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "kittrain.agent.fault_injection", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)
