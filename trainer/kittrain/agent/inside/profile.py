"""Prints a trace of some steps of a rank: ``python -P -m kittrain.agent.inside.profile --rank 3 --steps 20``.

``kitctl profile`` runs it next to the agent. The rank profiles itself (``kittrain.agent.hooks.profiling``). Linux only.
Standard library only.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from kittrain.agent.fault_injection import agent_here, rank_of
from kittrain.agent.hooks.profiling import SIGNAL, error_file, request_file, trace_file
from kittrain.agent.inside.stacks import stack_file, stopped
from kittrain.agent.inside.trace import calls, nested
from kittrain.agent.processes.stack_file import catches

POLL: Final = 0.1  # seconds
MAX_ERROR: Final = 500  # characters


def main() -> None:
    """Print the trace, as JSON that Chrome and Perfetto read."""
    parser = argparse.ArgumentParser("kittrain.agent.inside.profile", description="Profile steps of a rank.")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until the steps are taken")
    parser.add_argument("--agent", type=int, metavar="PID", help="the agent (default: the only one that runs here)")
    args = parser.parse_args()
    pid = rank_of(args.agent or agent_here(), args.rank)
    file = stack_file(pid)
    if file is None or not catches(pid, SIGNAL):
        sys.exit(f"rank {args.rank} cannot be asked: it is starting or ending, or has become another program")
    heartbeat = file.with_suffix("")
    if is_asked(request_file(heartbeat)):
        sys.exit(f"rank {args.rank} is being profiled already")
    for left in (trace_file(heartbeat), error_file(heartbeat)):  # by one that was killed
        left.unlink(missing_ok=True)
    request_file(heartbeat).write_text(f"{args.steps} {os.getpid()}")
    try:
        os.kill(pid, SIGNAL)
        trace = await_trace(pid, heartbeat, args.timeout)
        with trace.open("rb") as read:
            around = calls(read)
            read.seek(0)
            sys.stdout.buffer.writelines(nested(read, around))
    finally:
        for one in (request_file(heartbeat), trace_file(heartbeat), error_file(heartbeat)):
            one.unlink(missing_ok=True)


def is_asked(request: Path) -> bool:
    """Whether somebody who has made a request still waits for its trace."""
    with suppress(OSError, ValueError, IndexError):
        return Path(f"/proc/{request.read_text().split()[1]}").exists()
    return False


def await_trace(pid: int, heartbeat: Path, timeout: float) -> Path:
    """The trace, once it is complete.

    Raises:
        SystemExit: there is none, with the reason.
    """
    deadline = time.monotonic() + timeout
    while not trace_file(heartbeat).exists():
        if error_file(heartbeat).exists():
            sys.exit(f"the profiler failed: {error_file(heartbeat).read_text(errors='replace')[:MAX_ERROR]}")
        if not Path(f"/proc/{pid}").exists() or not heartbeat.exists():
            sys.exit("the rank has ended, or was started again, before it had taken the steps")
        if time.monotonic() > deadline:
            why = "the rank is stopped, by SIGSTOP or a debugger" if stopped(pid) else "kitctl stacks shows where it is"
            sys.exit(f"no such number of calls of an optimizer within {timeout:.0f} s: {why}")
        time.sleep(POLL)
    return trace_file(heartbeat)


if __name__ == "__main__":
    main()
