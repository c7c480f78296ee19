"""The pod supervisor: signals that it forwards, when it restarts the agent, and how the container ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.names import EXIT_CODES
from kitjob.run import RunFacts
from kittrain.outcome.restarts import MAX_RESTARTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pods run Linux")

TIMEOUT = 200.0  # seconds until a test fails
# A supervisor of fake agents: agent number N calls the function named by the N-th argument; later ones repeat the last.
PROGRAM = """
import os, signal, subprocess, sys, time
from kittrain.job.env import node_env
from kittrain.agent.processes.pod_supervisor import supervise
from kittrain.agent.processes.supervision import Supervision

def agent(supervision: Supervision) -> int:
    count = supervision.restart.count
    print(f"agent {count} {os.getpid()} {supervision.restart.cause or '-'}", flush=True)
    words = sys.argv[1:]
    return globals()[words[min(count, len(words) - 1)]](supervision)

def done(_): return 0
def drained(_): return 75
def retryable(_): return 76
def fatal(_): return 78
def odd(_): return 3
def killed(_): os.kill(os.getpid(), signal.SIGKILL)
def crashed(_): os.kill(os.getpid(), signal.SIGSEGV)
def raised(_): raise ValueError("an agent that fails")
def waiting(_): time.sleep(600)
def draining(_):
    got = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: got.append(number))
    print("ready", flush=True)
    while not got:
        time.sleep(0.01)
    print("got", got[0], flush=True)
    return 75
def leaving(_):
    child = subprocess.Popen(["sleep", "600"])
    print(f"left {child.pid}", flush=True)
    return 76
def advancing(_):
    (node.snapshot_dir / f"step-{time.monotonic_ns():020}-g0001").mkdir()
    return killed(_)
def reporting(_):
    node.termination_log.write_text('{"reason": "the storage is gone"}')
    return 76
def printing(_):
    print("message", node.termination_log.read_bytes(), flush=True)
    return 0
def succeeded(supervision):
    if supervision.restart.count:
        return 0
    agent = os.getpid()
    read, write = os.pipe()
    if not os.fork():
        supervision.stand_by()
        os.write(write, b"x")
        while os.getppid() == agent:
            time.sleep(0.001)
        print(f"successor {os.getpid()}", flush=True)
        supervision.succeed()
    os.read(read, 1)
    return killed(None)
def frozen(supervision):
    read, write = os.pipe()
    if not os.fork():
        supervision.stand_by()
        print(f"successor {os.getpid()}", flush=True)
        os.write(write, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
    os.read(read, 1)
    return killed(None)

node = node_env()
sys.exit(supervise(node, agent))
"""


@dataclass
class Container:
    """A supervisor's process, its folder, and its output."""

    process: subprocess.Popen[str]
    folder: Path

    def wait(self) -> list[str]:
        """Wait for its end; returns its output lines."""
        output, _ = self.process.communicate(timeout=TIMEOUT)
        return output.splitlines()

    def line(self) -> str:
        """Its next output line."""
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    @property
    def message(self) -> dict[str, str]:
        """The termination message."""
        found: dict[str, str] = json.loads((self.folder / "message").read_text())
        return found


class Start(Protocol):
    """Start a container whose agents call these functions of PROGRAM, in order."""

    def __call__(self, *agents: str, in_place: bool = True) -> Container: ...


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Start]:
    started = []
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "message").touch()
    given = {"KIT_TERMINATION_LOG": str(tmp_path / "message"), "KIT_SNAPSHOT_DIR": str(tmp_path / "snapshots")}

    def start(*agents: str, in_place: bool = True) -> Container:
        command = [sys.executable, "-c", PROGRAM, *agents]
        spec = {"KIT_SPEC": document.write(JobKeys(), RunFacts(restart_in_place=in_place))}
        started.append(subprocess.Popen(command, env=os.environ | given | spec, stdout=subprocess.PIPE, text=True))
        return Container(started[-1], tmp_path)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("outcome", ["done", "drained", "fatal"])
def test_an_agent_that_ends_for_good_ends_the_container_with_its_code(container: Start, outcome: str) -> None:
    here = container(outcome)
    assert len(here.wait()) == 1
    assert here.process.returncode == EXIT_CODES[outcome]


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("retryable", "the agent exited with 76"),
        ("odd", "the agent exited with 3"),
        ("raised", "the agent exited with 1"),
        ("killed", "the agent was killed by SIGKILL"),
        ("crashed", "the agent was killed by SIGSEGV"),
    ],
)
def test_after_any_other_exit_the_agent_is_restarted_and_knows_the_cause(
    container: Start, end: str, cause: str
) -> None:
    here = container(end, "done")
    first, *_, second = here.wait()
    assert here.process.returncode == 0
    assert (first.split(maxsplit=3)[1], second.split(maxsplit=3)[1]) == ("0", "1")
    assert second.split(maxsplit=3)[3] == cause


@pytest.mark.parametrize(("end", "code"), [("retryable", EXIT_CODES["retryable"]), ("killed", 128 + signal.SIGKILL)])
def test_without_restarts_in_place_the_container_ends_as_its_agent(container: Start, end: str, code: int) -> None:
    here = container(end, "done", in_place=False)
    assert len(here.wait()) == 1
    assert here.process.returncode == code


@pytest.mark.slow
def test_a_crash_loop_ends_the_container_and_is_reported(container: Start) -> None:
    here = container("killed")
    lines = here.wait()
    assert here.process.returncode == 128 + signal.SIGKILL
    assert sum(line.startswith("agent ") for line in lines) == MAX_RESTARTS + 1
    reason = "the agent was killed by SIGKILL; it was started again in place 10 times without a new snapshot"
    assert lines[-1] == f"[agent 0]: retryable: {reason}"
    assert (here.message["outcome"], here.message["reason"]) == ("retryable", reason)


@pytest.mark.wide
@pytest.mark.slow
def test_repeated_retryable_exits_keep_the_agents_own_message(container: Start) -> None:
    here = container("reporting")
    lines = here.wait()
    assert here.process.returncode == EXIT_CODES["retryable"]
    assert lines[-1].startswith("[agent 0]: retryable: the storage is gone; it was started again in place 10 times")
    assert here.message == {"reason": "the storage is gone"}


def test_a_restarted_agent_gets_the_reason_and_an_empty_message(container: Start) -> None:
    _, second, message = container("reporting", "printing").wait()
    assert second.split(maxsplit=3)[3] == "the storage is gone"
    assert message == "message b''"


def test_new_snapshots_refill_the_budget(container: Start) -> None:
    here = container(*["advancing"] * (MAX_RESTARTS + 2), "done")
    assert len(here.wait()) == MAX_RESTARTS + 3
    assert here.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_reaches_the_agent_whose_drain_ends_the_container(
    container: Start, number: signal.Signals
) -> None:
    here = container("draining")
    here.line()
    assert here.line() == "ready"
    here.process.send_signal(number)
    assert here.wait() == [f"got {number}"]
    assert here.process.returncode == EXIT_CODES["drained"]


def test_an_agent_that_is_stopped_before_it_can_drain_is_drained(container: Start) -> None:
    here = container("waiting")
    here.line()
    here.process.terminate()
    assert here.wait() == []
    assert here.process.returncode == EXIT_CODES["drained"]
    assert here.message["outcome"] == "drained"


def test_a_stop_between_two_agents_ends_the_container(container: Start) -> None:
    here = container("retryable")
    for _ in range(6):  # the delays have grown
        here.line()
    here.process.terminate()
    lines = here.wait()
    assert here.process.returncode in {EXIT_CODES["drained"], EXIT_CODES["retryable"]}
    assert len(lines) <= 1


def test_processes_that_an_agent_leaves_are_killed(container: Start) -> None:
    here = container("leaving", "done")
    _, left, _ = here.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(int(left.split()[1]), 0)


def test_a_successor_becomes_the_next_agent(container: Start) -> None:
    here = container("succeeded")
    _, successor, second = here.wait()
    assert here.process.returncode == 0
    assert second.split()[:3] == ["agent", "1", successor.split()[1]]


@pytest.mark.slow
def test_a_frozen_successor_is_replaced(container: Start) -> None:
    here = container("frozen", "done")
    _, successor, second = here.wait()
    assert here.process.returncode == 0
    assert second.split()[1] == "1"
    assert second.split()[2] != successor.split()[1]


def test_agents_die_with_the_supervisor(container: Start) -> None:
    here = container("waiting")
    agent = int(here.line().split()[2])
    here.process.kill()
    here.wait()
    deadline = time.monotonic() + TIMEOUT
    while Path(f"/proc/{agent}").exists() and "Z" not in Path(f"/proc/{agent}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
