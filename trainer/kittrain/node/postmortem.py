"""What is found out about a rank that has failed: from torch's record, its output, and the kernel's counters."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from kittrain.env import SHARED_MEMORY
from kittrain.outcome import rank_output
from kittrain.outcome.failures import Failure
from kittrain.rendezvous.stacks import locate
from kittrain.system.oom import Kills, size

# What a signal that the kernel sends for a fault of the process means.
FAULTS: Final = {
    signal.SIGSEGV: "invalid memory access in native code",
    signal.SIGBUS: "no memory is left behind a mapping",
    signal.SIGILL: "an instruction that this CPU does not have",
    signal.SIGFPE: "division by zero in native code",
    signal.SIGABRT: "native code gave up",
}


class Postmortem:
    """Looks into the ends of one round's ranks; made when they start."""

    def __init__(self) -> None:
        self._before = Kills.now()

    def failure(self, rank: int, record: ProcessFailure, output: Sequence[str]) -> Failure:
        """How a rank ended.

        Args:
            rank: which one.
            record: torch's, with the content of the error file where the rank could write one.
            output: what it printed last, the oldest line first.
        """
        lines = rank_output.excerpt(output)
        told: Any = record.message
        if isinstance(told, dict):
            traceback = told["extraInfo"]["py_callstack"]
            error = rank_output.innermost_error(told["message"].strip(), traceback)
        elif record.exitcode < 0:
            error, traceback = self._killed(record, output), ""
        else:
            said = rank_output.last_line(lines)
            error, traceback = f"exit code {record.exitcode}" + (f": {said}" if said else ""), ""
        if "Bus error" in error:
            error += f" ({_shared_memory()})"
        time = record.timestamp
        return Failure(
            rank=rank, exit_code=record.exitcode, error=error, traceback=traceback, lines=lines, time=int(time)
        )

    def _killed(self, record: ProcessFailure, output: Sequence[str]) -> str:
        """``killed by SIGSEGV at train.py:3 in step: invalid memory access in native code``."""
        number = -record.exitcode
        what = FAULTS.get(signal.Signals(number), "") if number in set(signal.Signals) else ""
        if number == signal.SIGKILL:
            what = Kills.now().since(self._before)
        elif number == signal.SIGBUS:
            what = f"{what} ({_shared_memory()})"
        stood = locate(output) if what and number != signal.SIGKILL else None
        return (
            f"killed by {record.signal_name()}" + (f" at {stood.line}" if stood else "") + (f": {what}" if what else "")
        )


def _shared_memory() -> str:
    """How large main memory's own file system is, which data loaders' workers and ranks share tensors through."""
    with suppress(OSError):
        found = os.statvfs(SHARED_MEMORY)
        return f"{SHARED_MEMORY} has {size(found.f_frsize * found.f_blocks)}"
    return f"there is no {SHARED_MEMORY}"
