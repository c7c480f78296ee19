"""Whether the machine at the other end of a connection still answers, with machines in network namespaces."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.recovery.network import Machine, Network
from kittrain.system.link_watch import LinkWatch

pytestmark = pytest.mark.slow
LIMIT = 60.0  # seconds until a test fails
SERVER = """
import socket, sys, time
server = socket.create_server(("", 7000))
connections = [server.accept() for _ in range(2)]
print("connected", flush=True)
sys.stdin.read()
"""
WATCH = """
import socket, sys, time
from kittrain.system.link_watch import LinkWatch
connection = socket.create_connection((sys.argv[1], 7000))
socket.create_connection((sys.argv[1], 7000)).close()
watch = LinkWatch(connection, lost_after=float(sys.argv[2]), port=int(sys.argv[3]))
print("watches", flush=True)
while not watch.is_lost(time.monotonic()):
    if watch.silence(time.monotonic()) >= watch.ping_interval:
        connection.send(b".")
    time.sleep(0.05)
print("lost", flush=True)
"""


@dataclass(frozen=True)
class Watched:
    """A process that watches its connection to another machine."""

    here: Machine
    there: Machine
    process: subprocess.Popen[str]
    server: subprocess.Popen[str]

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def until_lost(self) -> None:
        assert self.line() == "lost"

    def goes_on(self, seconds: float) -> bool:
        """Whether it still waits after some seconds."""
        time.sleep(seconds)
        return self.process.poll() is None


@contextmanager
def watching(lost_after: float = 3.0, *, port: int = 7000) -> Iterator[Watched]:
    with Network(2) as network:
        here, there = network.machines
        python = [sys.executable, "-P", "-c"]
        pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, "text": True, "cwd": "/"}
        with subprocess.Popen(there.command([*python, SERVER]), **pipes) as server:  # type: ignore[call-overload]
            until(lambda: ":7000" in run(there, "ss", "-ltn"))
            arguments = [there.address, str(lost_after), str(port)]
            with subprocess.Popen(here.command([*python, WATCH, *arguments]), **pipes) as process:  # type: ignore[call-overload]
                watched = Watched(here, there, process, server)
                try:
                    assert watched.line() == "watches"
                    yield watched
                finally:
                    process.kill()
                    server.kill()


def run(machine: Machine, *command: str) -> str:
    return subprocess.run(machine.command([*command]), check=True, capture_output=True, text=True).stdout


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@pytest.mark.needs_root
def test_a_machine_that_is_cut_off_is_lost() -> None:
    with watching() as watched:
        assert watched.goes_on(0.5)
        watched.there.disconnect()
        watched.until_lost()


@pytest.mark.needs_root
def test_a_machine_whose_ports_are_not_known_is_lost_as_well() -> None:
    with watching(port=0) as watched:
        watched.there.disconnect()
        watched.until_lost()


@pytest.mark.needs_root
def test_a_machine_to_which_no_way_leads_any_more_is_lost() -> None:
    """No packet leaves this machine then, so that none of those that ask is open: that is no answer."""
    with watching() as watched:
        here = watched.here.name
        subprocess.run(["ip", "-n", here, "route", "add", "unreachable", f"{watched.there.address}/32"], check=True)
        watched.until_lost()


@pytest.mark.needs_root
@pytest.mark.parametrize("port", [7000, 7001])
def test_a_black_out_of_two_seconds_loses_nothing(port: int) -> None:
    """The second port refuses, which is an answer."""
    with watching(port=port) as watched:
        watched.there.disconnect()
        time.sleep(2.0)
        watched.there.reconnect()
        assert watched.goes_on(1.5)


@pytest.mark.needs_root
def test_a_process_that_does_not_read_is_not_lost() -> None:
    with watching(2.0) as watched:
        subprocess.run(["kill", "-STOP", str(watched.server.pid)], check=True)
        assert watched.goes_on(5.0)


@pytest.mark.needs_root
def test_a_watcher_that_was_suspended_asks_first() -> None:
    with watching() as watched:
        watched.process.send_signal(signal.SIGSTOP)
        watched.there.disconnect()
        time.sleep(4.0)
        watched.there.reconnect()
        watched.process.send_signal(signal.SIGCONT)
        assert watched.goes_on(1.5)


def test_who_had_no_processor_asks_again_before_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked while the network may be silent says nothing, however late that is looked at."""

    def lost_at(*looks: float) -> float:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as end:
            watch = LinkWatch(end, lost_after=3.0, port=1)
            monkeypatch.setattr(watch, "silence", lambda now: now)
            monkeypatch.setattr(watch, "_probe", lambda _: None)  # nobody answers
            return next(now for now in looks if watch.is_lost(now))

    assert lost_at(*(1.2 + 0.15 * number for number in range(40))) == pytest.approx(3.0)
    assert lost_at(1.2, 1.9, 3.2, 4.5, 5.8, 7.1, 8.4, 9.7) == 9.7


def test_what_was_opened_to_ask_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len([*Path("/dev/fd").iterdir()])
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        watch = LinkWatch(connection, lost_after=3.0, port=server.getsockname()[1])
        monkeypatch.setattr(watch, "silence", lambda _: 2.0)
        for _ in range(20):
            watch.is_lost(time.monotonic())
        watch.close()
        connection.close()
    assert len([*Path("/dev/fd").iterdir()]) == before
