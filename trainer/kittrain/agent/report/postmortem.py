"""Finds the cause of a rank's failure: from torch's error file, its output, and the kernel's OOM counters."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from kittrain.agent.rendezvous.stacks import locate
from kittrain.job.env import SHARED_MEMORY
from kittrain.outcome import rank_output
from kittrain.outcome.failures import Failure
from kittrain.system.oom import OOMKills, format_bytes
from kittrain.system.texts import kept_error, kept_traceback

# Explanations of the signals that a crash causes.
FAULTS: Final = {
    signal.SIGSEGV: "invalid memory access in native code",
    signal.SIGBUS: "mapped memory is not there: its file was truncated, or what holds it is full",
    signal.SIGILL: "an instruction that this CPU does not support",
    signal.SIGFPE: "division by zero in native code",
    signal.SIGABRT: "native code aborted",
}


class Postmortem:
    """Explains failures of one round's ranks. Create it before they start: it compares OOM counters."""

    def __init__(self) -> None:
        self._before = OOMKills.now()

    def failure(self, rank: int, record: ProcessFailure, output: Sequence[str]) -> Failure:
        """Explain how a rank failed.

        Args:
            rank: its global rank.
            record: torch's record, with the content of the error file if the rank wrote one.
            output: its last lines, oldest first.
        """
        lines = rank_output.excerpt(output)
        message: Any = record.message
        if isinstance(message, dict):
            traceback = kept_traceback(str(message["extraInfo"].get("py_callstack", "")))
            error = rank_output.innermost_error(kept_error(str(message.get("message", "")).strip()), traceback)
            before = rank_output.without_traceback(output) if traceback else output
            own = rank_output.child_error(error, before)
            lines = rank_output.excerpt([*before, own])
        elif record.exitcode < 0:
            error, traceback = self._killed(record, output), ""
        else:
            last = rank_output.last_line(lines)
            error, traceback = f"exit code {record.exitcode}" + (f": {last}" if last else ""), ""
        if "Bus error" in error:
            error += f" ({_shared_memory()})"
        return Failure(
            rank=rank,
            exit_code=record.exitcode,
            error=kept_error(error),
            traceback=traceback,
            lines=lines,
            time=int(record.timestamp),
        )

    def _killed(self, record: ProcessFailure, output: Sequence[str]) -> str:
        """``killed by SIGSEGV at train.py:3 in step: invalid memory access in native code``."""
        number = -record.exitcode
        why = FAULTS.get(signal.Signals(number), "") if number in set(signal.Signals) else ""
        if number == signal.SIGKILL:
            why = OOMKills.now().since(self._before)
        elif number == signal.SIGBUS:
            why = f"{why} ({_shared_memory()})"
        elif number == signal.SIGABRT:
            why = rank_output.aborted(output) or why
        stood = locate(output) if why and number != signal.SIGKILL else None
        return (
            f"killed by {record.signal_name()}" + (f" at {stood.line}" if stood else "") + (f": {why}" if why else "")
        )


def _shared_memory() -> str:
    """The size of /dev/shm, through which data loader workers and ranks share tensors."""
    with suppress(OSError):
        found = os.statvfs(SHARED_MEMORY)
        return f"{SHARED_MEMORY} has {format_bytes(found.f_frsize * found.f_blocks)}"
    return f"{SHARED_MEMORY} does not exist"
