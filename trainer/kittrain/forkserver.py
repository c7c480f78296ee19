"""Nodes on one machine, forked from a process that has torch imported: ``python -P -m kittrain.forkserver SHIM``.

Several nodes then import it once, and one that was lost is back at once. Whoever starts nodes writes orders to stdin,
a line of JSON each, and reads from stdout: ``{"warm": true}`` first, then the process id that each order led to. That
is a process that runs ``main(arguments, start)`` of the script SHIM, which keeps one node and calls ``start`` once for
its agent. The server ends when stdin does; nodes live on.
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

from kittrain import agent
from kittrain.env import node_env
from kittrain.node.surroundings import share_cores
from kittrain.node.zygote import preload
from kittrain.system import cuda
from kittrain.system.inherited import stale
from kittrain.system.reborn import live, take_over


@dataclass(frozen=True, kw_only=True)
class Order:
    """A node to start: what its keeper is told, the agent's arguments, and its whole environment."""

    keeper: Sequence[str]
    agent: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Agent:
    """A forked agent, the leader of a session of its own; as much of ``subprocess.Popen`` as its keeper needs."""

    pid: int
    stdout: IO[bytes]  # and stderr

    def wait(self) -> int:
        """Wait for its exit code, negative if a signal has killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main(argv: Sequence[str]) -> int:
    """Serve; ends with 1 where ranks are to start cold, and so are nodes, or where forked ones could not use a GPU.

    Raises:
        EnvError: the first node's environment, which this process has, cannot be read.
    """
    node = node_env()
    if not node.warm_workers or sys.platform != "linux":
        return 1
    share_cores(node, os.environ)
    agent.load(node)
    imported_in = preload()
    if cuda.initialized():
        return 1
    keep = runpy.run_path(argv[0])["main"]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how keepers end
    _tell({"warm": True})
    for line in sys.stdin:
        order = Order(**json.loads(line))
        keeper = os.fork()
        if not keeper:
            live(partial(_keep, keep, order, imported_in))
        _tell({"pid": keeper})
    return 0


def _tell(message: Mapping[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _keep(keep: Callable[..., int], order: Order, imported_in: Mapping[str, str]) -> None:
    """Be the keeper of a node, who outlives the server and whoever ordered it."""
    os.setsid()
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.dup2(2, 1)
    os.close(silence)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.exit(keep([*order.keeper, "--", *order.agent], start=partial(_fork_agent, imported_in, order.env)))


def _fork_agent(imported_in: Mapping[str, str], env: Mapping[str, str], arguments: Sequence[str]) -> Agent:
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # its keeper's lock would be held by it, too
        live(partial(_be_agent, imported_in, env, arguments))
    os.close(theirs)
    while os.getsid(pid) != pid:  # whoever learns of it may at once end its whole group
        time.sleep(0.0005)
    return Agent(pid, os.fdopen(ours, "rb"))


def _be_agent(imported_in: Mapping[str, str], env: Mapping[str, str], arguments: Sequence[str]) -> Any:
    take_over(env)
    if reason := stale(imported_in, env):
        sys.stderr.write(f"warning: this agent starts as a new interpreter, which takes longer: {reason}\n")
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, "-P", "-m", "kittrain.agent", *arguments], dict(env))  # noqa: S606
    sys.exit(agent.main(list(arguments)))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # who started it has ended meanwhile
        sys.exit(main(sys.argv[1:]))
