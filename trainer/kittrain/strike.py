"""A fault on purpose: ``python -P -m kittrain.strike KILL --rank 3`` strikes a rank of this node, or its agent.

``kitctl drill`` runs it beside the agent. Standard library only, and Linux: who is who stands in /proc.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

AGENT: Final = b"\0kittrain.agent\0"
SIGNALS: Final = ("KILL", "STOP", "CONT", "TERM")


@dataclass(frozen=True, kw_only=True)
class Process:
    """A line of the table of processes. ``is_agent``: an agent, or what is forked from one."""

    pid: int
    parent: int
    session: int
    is_agent: bool


def main() -> None:
    """Send the signal, and say to whom before that: the agent's end is this process's as well, in a container."""
    parser = argparse.ArgumentParser("kittrain.strike", description="A fault on purpose.")
    parser.add_argument("signal", choices=SIGNALS)
    parser.add_argument("--rank", type=int, help="the victim; without it, the agent")
    parser.add_argument("--agent", type=int, metavar="PID", help="whose rank; by default that of the one agent here")
    args = parser.parse_args()
    agent = args.agent or agent_here()
    victim = agent if args.rank is None else rank_of(agent, args.rank)
    what = "the agent" if args.rank is None else f"rank {args.rank}"
    print(f"SIG{args.signal} to {what}, process {victim}", flush=True)  # noqa: T201  whoever asked reads it
    os.kill(victim, signal.Signals[f"SIG{args.signal}"])


def agent_here() -> int:
    """The process id of the agent in this container.

    Raises:
        SystemExit: there is none, or there are several.
    """
    found = {process.pid: process for process in processes() if process.is_agent}
    agents = [pid for pid, process in found.items() if process.parent not in found]
    if len(agents) != 1:
        sys.exit(f"{len(agents)} agents run here; --agent says whose rank is meant")
    return agents[0]


def rank_of(agent: int, rank: int) -> int:
    """The process id of an agent's rank.

    Raises:
        SystemExit: it has no such rank now.
    """
    for process in processes():
        # The leader of a session, and a child of the agent: what a rank itself has started writes to its pipe, too.
        if process.parent == agent and process.session == process.pid and rank in _writes_as(process.pid):
            return process.pid
    sys.exit(f"no rank {rank} runs here now")


def processes() -> Iterator[Process]:
    """All processes that can be seen from here.

    Raises:
        SystemExit: this system has no /proc.
    """
    folder = Path("/proc")
    if not (folder / "self" / "stat").exists():
        sys.exit("processes are found in /proc, which this system does not have")
    for pid in (int(path.name) for path in folder.glob("[0-9]*")):
        with suppress(OSError):  # it has ended meanwhile
            _, parent, _, session, *_ = (folder / str(pid) / "stat").read_text().rpartition(")")[2].split()
            is_agent = AGENT in (folder / str(pid) / "cmdline").read_bytes() and _is_python(pid)
            yield Process(pid=pid, parent=int(parent), session=int(session), is_agent=is_agent)


def _is_python(pid: int) -> bool:
    """Whether a process runs this Python: a container's init has the agent's command in its own."""
    return Path(f"/proc/{pid}/exe").readlink() == Path("/proc/self/exe").readlink()


def _writes_as(pid: int) -> set[int]:
    """The ranks whose pipe (``kittrain.node.ranklogs``) is a process's output: one, or none."""
    ranks = set()
    for number in (1, 2):
        with suppress(OSError, ValueError):  # another user's process; another kind of file
            ranks.add(int(Path(f"/proc/{pid}/fd/{number}").readlink().name.removesuffix(".pipe")))
    return ranks


if __name__ == "__main__":
    main()
