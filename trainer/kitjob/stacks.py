"""What the trainer prints of its ranks' stacks (``python -m kittrain.agent.inside.stacks``) and kitctl reads."""

from __future__ import annotations

from kitjob.record import Record


class StackFrame(Record):
    """A call that has not returned."""

    file: str
    """Path of its source."""
    line: int
    """Line that it is at."""
    function: str
    """Its function."""


class ThreadStack(Record):
    """The stack of one thread."""

    main: bool
    """Whether it is the main thread."""
    name: str = ""
    """Its name. Empty: it has none, or this Python does not tell."""
    frames: tuple[StackFrame, ...]
    """Its calls, the innermost first."""


class RankStack(Record):
    """Where a rank is."""

    rank: int
    """The rank."""
    pid: int
    """Its process id, on its machine or in its pod."""
    step: int | None = None
    """Optimizer steps taken. Null: unknown."""
    phase: str = ""
    """What it does, as its heartbeat tells. Empty: unknown."""
    wait: str = ""
    """The collective in which its main thread waits for other ranks. Empty: in none."""
    line: str = ""
    """The innermost line of the user's code in its main thread, or of any code if there is none."""
    note: str = ""
    """Why it has no stack. Empty: it has one."""
    threads: tuple[ThreadStack, ...] = ()
    """The stacks of all its threads that run Python, the main thread first."""
