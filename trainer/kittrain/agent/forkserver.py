"""Forks the local nodes from a process that has imported torch: ``python -P -m kittrain.agent.forkserver SHIM``.

So torch is imported once for all nodes, and a restarted node is up at once. kitctl writes requests to stdin, one line
of JSON each (``StartRequest``), and reads from stdout: ``{"ready": true}`` first, then ``{"pid": ...}`` for each
request. That process runs ``main(arguments, start)`` of the script SHIM, which calls ``start`` once to fork its agent.
The server exits when stdin is closed; the nodes go on.

Why: decision 18.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from kittrain.agent.main import main as run_agent
from kittrain.agent.node_run import load_supervisor
from kittrain.agent.processes.zygote import preload
from kittrain.agent.setup.host_info import share_cores
from kittrain.job.env import node_env
from kittrain.system import cuda
from kittrain.system.after_fork import reset_after_fork, run_and_exit
from kittrain.system.reexec import reexec_reason


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """A node to start: the arguments of its shim and its agent, and the agent's whole environment."""

    shim: Sequence[str]
    agent: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Agent:
    """A forked agent, the leader of its own session; the part of ``subprocess.Popen`` that the shim needs."""

    pid: int
    stdout: IO[bytes]  # and its stderr

    def wait(self) -> int:
        """Wait for its exit code, negative if killed by a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main(argv: Sequence[str]) -> int:
    """Serve requests; returns 1 if warm workers are disabled, or if forked processes could not use a GPU.

    Raises:
        EnvError: the environment, which is that of the first node, is invalid.
    """
    node = node_env()
    if not node.warm_workers or sys.platform != "linux":
        return 1
    share_cores(node, os.environ)
    load_supervisor()
    imported_in = preload()
    if cuda.initialized():
        return 1
    shim_main = runpy.run_path(argv[0])["main"]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
    _send({"ready": True})
    for line in sys.stdin:
        request = StartRequest(**json.loads(line))
        shim = os.fork()
        if not shim:
            run_and_exit(partial(_run_shim, shim_main, request, imported_in))
        _send({"pid": shim})
    return 0


def _send(message: Mapping[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _run_shim(shim_main: Callable[..., int], request: StartRequest, imported_in: Mapping[str, str]) -> None:
    """Run a node's shim, detached: it outlives the server and the supervisor."""
    os.setsid()
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.dup2(2, 1)
    os.close(devnull)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.exit(shim_main([*request.shim, "--", *request.agent], start=partial(_fork_agent, imported_in, request.env)))


def _fork_agent(imported_in: Mapping[str, str], env: Mapping[str, str], arguments: Sequence[str]) -> Agent:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.dup2(write_end, 1)
        os.dup2(write_end, 2)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # above all the shim's lock
        run_and_exit(partial(_run_agent, imported_in, env, arguments))
    os.close(write_end)
    while os.getsid(pid) != pid:  # the caller may kill its process group at once
        time.sleep(0.0005)
    return Agent(pid, os.fdopen(read_end, "rb"))


def _run_agent(imported_in: Mapping[str, str], env: Mapping[str, str], arguments: Sequence[str]) -> Any:
    reset_after_fork(env)
    if reason := reexec_reason(imported_in, env):
        sys.stderr.write(f"warning: the agent starts in a new interpreter, which takes longer: {reason}\n")
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, "-P", "-m", "kittrain.agent", *arguments], dict(env))  # noqa: S606
    sys.exit(run_agent(list(arguments)))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the supervisor has exited
        sys.exit(main(sys.argv[1:]))
