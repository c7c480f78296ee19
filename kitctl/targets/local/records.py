"""What is written down about a job and its nodes: a JSON file each (``folder`` says where). Times are Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

from kitctl.facts import Termination
from kitctl.spec import JobSpec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What was submitted. ``python`` is the interpreter that runs the nodes."""

    spec: JobSpec
    run: str
    created: float
    folder: str
    python: str
    version: str


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a job; a higher ``restarts`` than a node was started with means: start it anew."""

    nodes: int
    suspended: bool = False
    cancelled: bool = False
    restarts: int = 0


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor chose for this run."""

    port: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    phase: Literal["Succeeded", "Failed", "Cancelled"]
    time: float
    failure: Termination | None = None


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Written by a shim once its agent runs; the agent's pid is also its session and process group."""

    time: float
    pid: int
    restarts: int


class Exited(msgspec.Struct, frozen=True, kw_only=True):
    """Written by a shim when its agent is gone: an exit code, or the signal that ended it."""

    time: float
    code: int | None = None
    signal: int | None = None
