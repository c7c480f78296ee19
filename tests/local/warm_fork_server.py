"""One process a test session that has torch imported, and from which the fork servers of local jobs are forked.

Each job's supervisor starts ``python -P -m kittrain.agent.forkserver``, which takes three seconds of a core to import
torch. With ``environ`` in a command's environment, that process finds ``warm/sitecustomize.py`` on its path, which
hands its pipes, folder and environment to the warm process, and the fork of that serves the job. Nothing else differs:
where a new interpreter would have read another value of a variable, or is another one, it goes on by itself.

    python -P tests/local/warm_fork_server.py SOCKET SESSION
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kitctl.render.environment import script_env
from kittrain.agent import forkserver
from kittrain.agent.processes.zygote import preload
from kittrain.system.after_fork import reset_after_fork, run_and_exit
from kittrain.system.reexec import reexec_reason

if TYPE_CHECKING:
    import pytest

FOLDER: Final = Path(__file__).with_name("warm")  # with sitecustomize.py
VARIABLE: Final = "WARM_FORK_SERVER"  # the socket's path
AGENTS: Final = "kittrain.agent.rounds.supervise"  # what agents import
START_SECONDS: Final = 60.0


def environ(factory: pytest.TempPathFactory) -> dict[str, str]:
    """What to add to a command's environment; starts the session's process if this is the first call of its workers."""
    if not sys.platform.startswith("linux"):
        return {}
    base = factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # one that the session's workers share
    path = folder / "warm.sock"
    added = {VARIABLE: str(path), "PYTHONPATH": os.pathsep.join([str(FOLDER), *_search_path()])}
    with (folder / "warm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            command = [sys.executable, "-P", __file__, str(path), str(session)]
            env = {**script_env(), **os.environ, **added}  # as of the jobs that are forked from it
            output = (folder / "warm.log").open("wb")
            with output:
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
            deadline = time.monotonic() + START_SECONDS
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
    return added


def _search_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != str(FOLDER)]


def serve(path: Path, session: int) -> None:
    """Fork a server for each request, until the test session has ended."""
    ended = os.pidfd_open(session)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen()
    Path(f"{path}.new").rename(path)  # requests wait until everything is imported
    import_module(AGENTS)
    imported_in = preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps what was forked
    while ended not in select.select([listener.fileno(), ended], [], [])[0]:
        connection, _ = listener.accept()
        with connection, suppress(OSError, ValueError):
            _take(connection, imported_in, [listener.fileno(), ended])


def _take(connection: socket.socket, imported_in: Mapping[str, str], ours: list[int]) -> None:
    """Fork the server of a request and answer its process id; 0 if it has to start by itself."""
    _, pipes, _, _ = socket.recv_fds(connection, 1, 3)
    try:
        with connection.makefile("rb") as lines:
            request: dict[str, Any] = json.loads(lines.readline())
        env = request["env"]
        other = request["python"] != sys.executable
        pid = 0
        if not other and not reexec_reason(imported_in, env):
            pid = os.fork()
            if not pid:
                run_and_exit(partial(_serve_job, request, pipes, [*ours, connection.fileno()]))
        connection.sendall(b"%d" % pid)
    finally:
        for pipe in pipes:
            os.close(pipe)


def _serve_job(request: Mapping[str, Any], pipes: list[int], ours: list[int]) -> None:
    """Be the fork server that the request's process would have become."""
    os.setsid()
    os.chdir(request["cwd"])
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
    for descriptor in (*pipes, *ours):
        os.close(descriptor)
    reset_after_fork(request["env"])
    with suppress(BrokenPipeError):  # as in its own main block
        sys.exit(forkserver.main([request["shim"]]))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
