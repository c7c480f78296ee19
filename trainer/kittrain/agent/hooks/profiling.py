"""Profiles some steps of a rank when somebody asks by a signal; nothing is done before, in no step.

The request is a file next to the rank's heartbeat. Torch's profiler runs from one call of an optimizer to a later one,
whoever calls it: the library's loop, or the script's own. Then the trace is written, for which training waits. No error
of it reaches the script. Standard library only, until somebody asks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

SIGNAL: Final = signal.SIGRTMIN + 8 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
OPTIMIZERS: Final = "torch.optim.optimizer"


def request_file(heartbeat: Path) -> Path:
    """The file with the number of steps and the process that asks, which removes it to withdraw the request."""
    return heartbeat.with_name(f"{heartbeat.name}.profile")


def trace_file(heartbeat: Path) -> Path:
    """The trace, complete once it is there."""
    return heartbeat.with_name(f"{heartbeat.name}.trace")


def error_file(heartbeat: Path) -> Path:
    """Why there is no trace."""
    return heartbeat.with_name(f"{heartbeat.name}.untraced")


def offer(environ: Mapping[str, str] = os.environ) -> None:
    """Handle the signal in this process; without an agent nobody asks."""
    if (name := environ.get("KIT_HEARTBEAT_FILE")) and sys.platform == "linux":
        heartbeat = Path(name)
        signal.signal(SIGNAL, lambda *_: _begin(heartbeat))
        signal.siginterrupt(SIGNAL, False)  # noqa: FBT003  system calls of the script and its libraries go on


def _begin(heartbeat: Path) -> None:
    try:
        steps = int(request_file(heartbeat).read_text().split()[0])
        if optimizers := sys.modules.get(OPTIMIZERS):
            _Profiling(heartbeat, steps, optimizers)
        else:
            _fail(heartbeat, RuntimeError("the script has not imported torch"))
    except Exception as error:  # noqa: BLE001  whatever it is, the script continues
        _fail(heartbeat, error)


class _Profiling:
    """One request, from its signal to its trace."""

    def __init__(self, heartbeat: Path, steps: int, optimizers: ModuleType) -> None:
        self._heartbeat = heartbeat
        self._left = steps + 1  # the first is the profiler's own warm-up
        self._profiler: Any = None
        self._optimizer = 0  # id of the one whose calls are steps: others may take turns with it
        self._remove: Callable[[], None] = optimizers.register_optimizer_step_post_hook(self._called).remove

    def _called(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if self._optimizer not in {0, id(optimizer)}:
            return
        self._optimizer = id(optimizer)
        try:
            if not request_file(self._heartbeat).exists():
                self._end()
            elif self._profiler is None:
                self._profiler = _profiler(self._left - 1)
                self._profiler.start()
            else:
                self._left -= 1
                if not self._left:
                    self._end(written=True)
                else:
                    self._profiler.step()
        except Exception as error:  # noqa: BLE001  as above
            with suppress(Exception):
                self._end()
            _fail(self._heartbeat, error)

    def _end(self, *, written: bool = False) -> None:
        self._remove()
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.stop()
        if written:
            draft = trace_file(self._heartbeat).with_suffix(".draft.json")
            profiler.export_chrome_trace(str(draft))
            draft.rename(trace_file(self._heartbeat))
            request_file(self._heartbeat).unlink(missing_ok=True)


def _profiler(steps: int) -> Any:
    """A profiler that marks each step; it would end itself only after more steps than it is given."""
    from torch import profiler  # noqa: PLC0415  only where somebody asks

    schedule = profiler.schedule(wait=0, warmup=1, active=steps + 1)
    return profiler.profile(activities=[*profiler.supported_activities()], schedule=schedule)


def _fail(heartbeat: Path, error: Exception) -> None:
    with suppress(OSError):
        error_file(heartbeat).write_text(f"{type(error).__name__}: {error}")
