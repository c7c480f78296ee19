"""Injects a fault: ``python -P -m kittrain.agent.fault_injection KILL --rank 3`` signals a rank, or the agent.

``DAMAGE --rank 3`` kills it after a bit of what it stored was flipped; ``UNAVAILABLE``, ``DENIED`` and ``CUT`` put
something else in the place of the mirror's store for some seconds (``stored_faults``).

``kitctl drill`` runs it in the agent's container. Linux only: it finds processes in /proc. Standard library only.
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

from kittrain.agent import stored_faults
from kittrain.agent.stored_faults import ANSWERS
from kittrain.system.child_processes import SUPERVISOR

AGENT: Final = b"\0kittrain.agent\0"
SIGNALS: Final = ("KILL", "STOP", "CONT", "TERM")
DAMAGE: Final = "DAMAGE"


@dataclass(frozen=True, kw_only=True)
class Process:
    """A running process. ``is_agent`` is also true for processes that were forked from an agent."""

    pid: int
    parent: int
    session: int
    is_agent: bool


def main() -> None:
    """Print the target, then send the signal. If the agent's death ends its container, it ends this process, too."""
    parser = argparse.ArgumentParser("kittrain.agent.fault_injection", description="Inject a fault.")
    parser.add_argument("fault", choices=(*SIGNALS, DAMAGE, *ANSWERS))
    parser.add_argument("--rank", type=int, help="the rank to signal (default: the agent)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a fault of the mirror lasts")
    parser.add_argument("--agent", type=int, metavar="PID", help="the agent (default: the only one that runs here)")
    args = parser.parse_args()
    agent = args.agent or agent_here()
    if args.fault in ANSWERS:
        uploader = child_of(agent, stored_faults.UPLOADER, "no process uploads to a mirror here")
        stored_faults.substitute(uploader, args.fault, args.seconds)
        return
    target = agent if args.rank is None else rank_of(agent, args.rank)
    what = "the agent" if args.rank is None else f"rank {args.rank}"
    name = "KILL" if args.fault == DAMAGE else args.fault
    if args.fault == DAMAGE:
        stored_faults.damage(child_of(agent, stored_faults.COPIER, "no process keeps copies here"), args.rank)
    print(f"SIG{name} to {what}, process {target}", flush=True)  # noqa: T201  kitctl reads it
    os.kill(target, signal.Signals[f"SIG{name}"])


def agent_here() -> int:
    """The process id of the agent in this container.

    Raises:
        SystemExit: there is not exactly one.
    """
    found = {process.pid: process for process in processes() if process.is_agent}
    agents = [pid for pid, process in found.items() if process.parent not in found]
    if len(agents) != 1:
        sys.exit(f"{len(agents)} agents run here; choose one with --agent")
    return agents[0]


def child_of(agent: int, module: bytes, missing: str) -> int:
    """The process id of an agent's child that runs a module.

    Raises:
        SystemExit: there is none.
    """
    for process in processes():
        with suppress(OSError):  # it has ended
            if process.parent == agent and module in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                return process.pid
    sys.exit(missing)


def rank_of(agent: int, rank: int) -> int:
    """The process id of an agent's rank.

    Raises:
        SystemExit: it has no such rank.
    """
    if rank not in (found := ranks_of(agent)):
        sys.exit(f"rank {rank} does not run here")
    return found[rank]


def ranks_of(agent: int) -> dict[int, int]:
    """The process ids of an agent's ranks, by rank."""
    # A rank leads a session and is a child of the agent; processes that it started write to the same pipe.
    leaders = [one.pid for one in processes() if one.parent == agent and one.session == one.pid]
    return {rank: pid for pid in leaders for rank in _writes_as(pid)}


def processes() -> Iterator[Process]:
    """All processes in this PID namespace.

    Raises:
        SystemExit: this system has no /proc.
    """
    folder = Path("/proc")
    if not (folder / "self" / "stat").exists():
        sys.exit("/proc does not exist on this system")
    for pid in (int(path.name) for path in folder.glob("[0-9]*")):
        with suppress(OSError):  # it has ended
            named, _, rest = (folder / str(pid) / "stat").read_text().rpartition(")")
            _, parent, _, session, *_ = rest.split()
            is_agent = AGENT in (folder / str(pid) / "cmdline").read_bytes() and _is_python(pid)
            is_agent = is_agent and not named.endswith(f"({SUPERVISOR}")
            yield Process(pid=pid, parent=int(parent), session=int(session), is_agent=is_agent)


def _is_python(pid: int) -> bool:
    """Whether a process runs this Python. A container's init has the agent's command in its own command line."""
    return Path(f"/proc/{pid}/exe").readlink() == Path("/proc/self/exe").readlink()


def _writes_as(pid: int) -> set[int]:
    """The rank whose pipe (``kittrain.agent.processes.rank_logs``) is the process's output, as a set of one or none."""
    ranks = set()
    for number in (1, 2):
        with suppress(OSError, ValueError):  # another user's process, or another kind of file
            ranks.add(int(Path(f"/proc/{pid}/fd/{number}").readlink().name.removesuffix(".pipe")))
    return ranks


if __name__ == "__main__":
    main()
