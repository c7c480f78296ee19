"""Prints the stacks of this node's ranks as JSON: ``python -P -m kittrain.agent.inside.stacks``.

``kitctl stacks`` runs it next to the agent. It asks each rank by a signal, and reads what that writes to a file. The
agent has no part in it, so it works while the agent, or all ranks, hang. Linux only. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from kitjob import typed
from kitjob.stacks import RankStack, StackFrame, ThreadStack
from kittrain.agent.fault_injection import agent_here, ranks_of
from kittrain.agent.processes.stack_file import answer, ask, path_of
from kittrain.agent.rendezvous.diagnosis import PHASE_NAMES
from kittrain.agent.rendezvous.stacks import FRAME, locate
from kittrain.system.heartbeat import HeartbeatState

STOPPED: Final = "it is stopped, by SIGSTOP or a debugger"
STARTED_BY: Final = "/kittrain/agent/processes/worker.py"
TIMEOUT: Final = 1.0  # seconds for all ranks to write
QUIET: Final = 0.1  # seconds without a further byte: a stack is complete
POLL: Final = 0.01  # seconds
SUFFIX: Final = path_of(Path("heartbeat")).suffix  # of a file with stacks, next to its rank's heartbeat
LIMIT: Final = 1 << 20  # bytes of a rank's stacks: faulthandler prints at most 100 threads of 100 frames
HEADER: Final = re.compile(r"(?:Current thread|Thread) (?P<id>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(")


def main() -> None:
    """Print a list of ``RankStack`` for each agent."""
    parser = argparse.ArgumentParser("kittrain.agent.inside.stacks", description="Print the stacks of ranks.")
    parser.add_argument("--agent", type=int, metavar="PID", action="append", help="an agent (default: the only one)")
    agents = parser.parse_args().agent or [agent_here()]
    by_agent = [ranks_of(agent) for agent in agents]
    found = {one.rank: one for one in stacks({rank: pid for ranks in by_agent for rank, pid in ranks.items()})}
    json.dump(typed.encode([[found[rank] for rank in sorted(ranks)] for ranks in by_agent]), sys.stdout)


@dataclass
class _Asked:
    """A rank that was asked, and what it has written since."""

    file: Path
    text: bytes = b""
    grown: float = field(default_factory=time.monotonic)

    def complete(self) -> bool:
        """Read again; returns whether its answer is complete."""
        with suppress(OSError), self.file.open("rb") as file:  # it may have ended
            text = file.read(LIMIT)
            if text != self.text:
                self.text, self.grown = text, time.monotonic()
        return bool(self.text) and time.monotonic() > self.grown + QUIET


def stacks(ranks: Mapping[int, int]) -> list[RankStack]:
    """The stacks of ranks, given their process ids; within ``TIMEOUT``."""
    files = {rank: stack_file(pid) for rank, pid in ranks.items()}
    notes = {rank: _ask(pid, files[rank]) for rank, pid in ranks.items()}
    asked = {rank: _Asked(file) for rank, file in files.items() if file and not notes[rank]}
    deadline = time.monotonic() + TIMEOUT
    while sum(not one.complete() for one in asked.values()) and time.monotonic() < deadline:
        time.sleep(POLL)
    texts = {rank: answer(ranks[rank], one.file) for rank, one in asked.items()}
    return [_of_rank(rank, pid, files[rank], texts.get(rank, []), notes[rank]) for rank, pid in sorted(ranks.items())]


def _ask(pid: int, file: Path | None) -> str:
    """Ask a rank; returns why it cannot answer, or empty."""
    if stopped(pid):
        return STOPPED
    if file and ask(pid, file):
        return ""
    return "it offers no stacks: it is starting or ending, or has become another program"


def stack_file(pid: int) -> Path | None:
    """The file that a rank has opened for its stacks."""
    with suppress(OSError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if (file := link.readlink()).suffix == SUFFIX:
                    return file
    return None


def stopped(pid: int) -> bool:
    """Whether a process is stopped, by SIGSTOP or a debugger."""
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in {"T", "t"}
    return False


def _of_rank(rank: int, pid: int, file: Path | None, lines: list[str], note: str) -> RankStack:
    location, beat = locate(lines), _beat(file)
    if not location:
        return RankStack(
            rank=rank, pid=pid, note=note or (STOPPED if stopped(pid) else f"no answer within {TIMEOUT:.0f} s"), **beat
        )
    return RankStack(rank=rank, pid=pid, wait=location.wait, line=location.line, threads=threads(lines), **beat)


def _beat(file: Path | None) -> dict[str, Any]:
    """The step and the phase of a rank's heartbeat, which lies next to its stacks."""
    if file is not None:
        with suppress(OSError, ValueError):
            beat = HeartbeatState.read(file.with_suffix(""))
            return {"step": beat.step, "phase": PHASE_NAMES[beat.phase]}
    return {}


def threads(printed: Iterable[str]) -> tuple[ThreadStack, ...]:
    """The threads that faulthandler printed, the main one first: it prints that last.

    Before them may be the answer to somebody else, who asked at the same time: the same threads.
    """
    found: list[tuple[str, str, list[StackFrame]]] = []
    for text in printed:
        if header := HEADER.match(text):
            found.append((header["id"], header["name"] or "", []))
        elif found and (frame := FRAME.match(text)):
            found[-1][-1].append(StackFrame(file=frame[1], line=int(frame[2]), function=frame[3]))
    last: dict[str, ThreadStack] = {}
    for thread, name, frames in reversed(found):
        if thread in last:
            break
        last[thread] = ThreadStack(main=not last, name=name, frames=_own(frames))
    return tuple(last.values())


def _own(frames: list[StackFrame]) -> tuple[StackFrame, ...]:
    """The frames without those that have started the user's command."""
    return tuple(takewhile(lambda frame: not frame.file.endswith(STARTED_BY), frames))


if __name__ == "__main__":
    main()
