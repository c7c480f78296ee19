"""The JSON files of a job and its nodes, as types; ``folder`` has their paths. Times are Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

from kitctl.spec.job_spec import JobSpec
from kitjob.report import Termination


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What was submitted.

    ``python`` is the interpreter that runs the nodes, ``folder`` where they start, and ``code`` the digest of the
    folder that was sent; empty: none was. ``requirements`` is that of the script's requirements, or empty, and
    ``packages`` the folder in which they are installed. ``library`` is a folder to add to its path; empty: none is.
    """

    spec: JobSpec
    run: str
    created: float
    folder: str
    python: str
    version: str
    code: str = ""
    library: str = ""
    requirements: str = ""
    packages: str = ""


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state of a job; a node that was started with fewer ``restarts`` is restarted."""

    nodes: int
    suspended: bool = False
    cancelled: bool = False
    restarts: int = 0


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor chose for this run."""

    port: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job."""

    phase: Literal["Succeeded", "Failed", "Cancelled"]
    time: float
    failure: Termination | None = None


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Written by a shim once its agent runs; the agent's pid is also its session id and process group."""

    time: float
    pid: int
    restarts: int


class Exited(msgspec.Struct, frozen=True, kw_only=True):
    """Written by a shim when its agent has ended: an exit code, or the signal that killed it."""

    time: float
    code: int | None = None
    signal: int | None = None
