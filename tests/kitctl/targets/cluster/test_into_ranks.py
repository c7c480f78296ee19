"""exec, port-forward and stacks on a fake API server whose kubelet runs the real tools next to real processes."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kitctl.base import names
from kitjob import typed
from kitjob.report import NodeAssignment, Progress, Report
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key
from tests.kitctl.targets.cluster.test_cluster_target import NO_CLAIM, pod
from tests.trainer.ranks import StartRank
from tests.trainer.ranks import start_rank as start_rank  # noqa: PLC0414 - a fixture

SLEEPS = "import os, time; os.write(int(os.environ['READY']), b'.')\ntime.sleep(600)\n"
ASSIGNED = {"0": NodeAssignment(ranks=(0, 1)), "1": NodeAssignment(ranks=(2, 3))}


@pytest.fixture
def running(server: ApiServer, kit: Kit, start_rank: StartRank) -> Kit:
    """A job with two nodes, each a pod; rank 3 is a process on this machine."""
    kit.submit(nodes=2, **NO_CLAIM)
    for node in range(2):
        pod(server, node=node)
        spec = {"containers": [{"name": names.CONTAINER, "command": [*names.PYTHON, names.AGENT]}]}
        server.store.patch(Key("pods", "default", f"run-{node}"), {"spec": spec}, apply=False)
    report = Report(run="r", world_size=4, nodes=ASSIGNED, progress=Progress(step=1))
    status = Key("configmaps", "default", names.status_name("run"))
    server.store.patch(status, {"data": {"report": typed.dump(report).decode()}}, apply=False)
    server.kubelet.agent = os.getpid()
    start_rank(3, SLEEPS)
    return kit


def test_a_command_runs_in_the_pod_of_the_rank(running: Kit, server: ApiServer, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), sys.argv[1:]); sys.stderr.write('\\x1b[2Jhi\\n'); sys.exit(5)"
    process = command(running, "exec", "run", "--rank", "3", "--", sys.executable, "-c", code, "--rank", "x y")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 5
    assert output == f"{tmp_path} ['--rank', 'x y']\n"
    assert errors == "rank 3: pod run-1, container pytorch, by alice\n\x1b[2Jhi\n", "a pipe gets what was printed"
    asked = [one for one in server.requests if one.path.endswith("/exec")]
    assert [one.path for one in asked] == ["/api/v1/namespaces/default/pods/run-1/exec"]


@pytest.mark.parametrize("protocols", [("v5.channel.k8s.io",), ("v4.channel.k8s.io",)])
def test_its_input_is_passed_on_and_ends(running: Kit, server: ApiServer, protocols: tuple[str, ...]) -> None:
    server.kubelet.protocols = protocols
    given = "".join(f"{number}\n" for number in range(50_000))
    words = ["cat"] if protocols[0].startswith("v5") else ["head", "-c", str(len(given))]  # v4 cannot end it
    process = command(running, "exec", "run", "--rank", "3", "-i", "--", *words)
    output, errors = process.communicate(given, timeout=60)
    assert (process.returncode, output == given) == (0, True), errors


def test_ctrl_c_interrupts_the_command(running: Kit) -> None:
    script = "trap 'echo interrupted > done; exit' INT; echo on; while :; do sleep 0.1; done"
    process = command(running, "exec", "run", "--rank", "3", "--", "sh", "-c", script)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    for _ in range(600):
        if (running.folder / "done").exists():
            return
        threading.Event().wait(0.1)
    raise AssertionError("the command was not interrupted")


def test_with_a_terminal_keys_and_its_size_are_passed_on(running: Kit, server: ApiServer) -> None:
    leader, follower = pty.openpty()
    words = ["exec", "run", "--rank", "3", "-it", "--", "sh", "-c", "stty size; read word; echo got $word; exit 3"]
    process = command(running, *words, stdin=follower, stdout=follower, env={"COLUMNS": "77", "LINES": "33"})
    os.close(follower)
    seen = b""
    sent = False
    with suppress(OSError):  # its end
        while data := os.read(leader, 4096):
            seen += data
            if not sent and re.search(rb"\d+ \d+\r\n", seen):
                os.write(leader, b"key\r")
                sent = True
    assert process.wait(60) == 3
    assert b"got key" in seen
    assert (77, 33) in server.kubelet.sizes


def test_a_terminal_needs_a_terminal(running: Kit) -> None:
    output = running("exec", "run", "--rank", "3", "-t", "--", "true", exit_code=2)
    assert "-t needs a terminal" in output


def test_what_cannot_be_entered_says_why(running: Kit, server: ApiServer) -> None:
    assert "job 'run' has no rank 4" in running("exec", "run", "--rank", "4", "--", "true", exit_code=102)
    assert "rank 0 does not run here" in process_errors(running, "exec", "run", "--", "true")
    kinds = ["pods", "configmaps", "jobs", "trainjobs", "jobsets", "pytorchjobs"]
    server.users["few"] = User("ada", [{"verbs": ["get", "list"], "apiGroups": ["*"], "resources": kinds}])
    for words in (("exec", "run", "--rank", "3", "--", "true"), ("stacks", "run")):
        assert "is forbidden: User" in running(*words, token="few", exit_code=1)


def test_a_port_is_forwarded_both_ways(running: Kit, echo: int) -> None:
    process = command(running, "port-forward", "run", "--rank", "3", f"0:{echo}")
    assert process.stderr
    told = process.stderr.readline()
    found = re.fullmatch(rf"rank 3: pod run-1, port {echo}, is 127.0.0.1:(\d+), by alice; Ctrl-C ends it\n", told)
    assert found, told
    big = os.urandom(1 << 20)
    for sent in (b"hello", big):
        with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
            threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
            received = b""
            while len(received) < len(sent):
                received += connection.recv(65536)
        assert received == sent
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def test_a_port_that_nobody_listens_on_is_told(running: Kit) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = command(running, "port-forward", "run", "--rank", "3", f"0:{port}")
    assert process.stderr
    found = re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())
    assert found
    with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
        assert connection.recv(1) == b""
    assert process.stderr.readline() == "connection ended: nothing listens there\n"
    process.kill()
    process.wait()


def test_without_the_right_no_port_is_announced(server: ApiServer, running: Kit, echo: int) -> None:
    reads = {"verbs": ["get", "list"], "apiGroups": ["", "batch"], "resources": ["pods", "jobs", "configmaps"]}
    server.users["token"] = User(rules=[reads])
    output = running("port-forward", "run", "--rank", "3", "0:80", exit_code=1)
    assert output.startswith("error: you may not forward ports to pods in namespace 'default' (pods/portforward)")
    forwards = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/portforward"]}
    server.users["token"] = User(rules=[reads, forwards])
    assert "cannot be used" in running("port-forward", "run", "--rank", "3", f"{echo}:80", exit_code=2)


def test_a_taken_port_is_an_error(running: Kit, echo: int) -> None:
    output = running("port-forward", "run", "--rank", "3", f"{echo}:80", exit_code=2)
    assert f"port {echo} of this machine cannot be used: " in output
    for ports in ("a:1", "1:70000", "0", ":5", "5:0"):
        assert "is not [LOCAL:]REMOTE" in running("port-forward", "run", ports, exit_code=2)


def test_stacks_of_all_pods_at_once(running: Kit, server: ApiServer) -> None:
    output = running("stacks", "run", "--rank", "3")
    assert "rank 3 (node 1, process " in output
    assert "/3.py:2" in output
    server.plan("GET .*/pods/run-0/exec", answer=(500, {"kind": "Status", "message": "no \x1b[2Jrunc"}))
    output = running("stacks", "run")
    assert "node 0: no \\x1b[2Jrunc" in output or "node 0: " in output
    assert "rank 3 (node 1" in output, "one that does not answer hides no other"


def test_what_ranks_use_is_asked_in_all_pods_with_no_other_right(running: Kit, server: ApiServer) -> None:
    asked = len(server.requests)
    rows = [line.split() for line in running("top", "run").splitlines()]
    assert {(row[0], row[1]) for row in rows[1:] if row[1] != "all"} == {("0", "3"), ("1", "3")}, "one agent for both"
    assert {one.path for one in server.requests[asked:] if one.path.endswith("/exec")} == {
        f"/api/v1/namespaces/default/pods/run-{node}/exec" for node in range(2)
    }
    server.plan("GET .*/pods/run-0/exec", answer=(500, {"kind": "Status", "message": "no \x1b[2Jrunc"}))
    output = running("top", "run")
    assert re.search(r"^node 0: .+", output, re.MULTILINE)
    assert "\x1b" not in output
    assert re.search(r"^1 +3 ", output, re.MULTILINE), "one that does not answer hides no other"


@pytest.fixture
def echo() -> Iterator[int]:
    """A port that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listening.getsockname()[1]
    listening.close()


def command(kit: Kit, *words: str, env: dict[str, str] | None = None, **streams: int) -> subprocess.Popen[str]:
    """kitctl as a process of its own."""
    path = kit.server.kubeconfig(kit.folder)
    full = [sys.executable, "-m", "kitctl", words[0], "--kubeconfig", str(path), *words[1:]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen(full, text=True, env=os.environ | (env or {}), **pipes)  # type: ignore[call-overload,no-any-return]


def process_errors(kit: Kit, *words: str) -> str:
    """What a command that fails says."""
    _, errors = command(kit, *words).communicate(timeout=60)
    return errors
