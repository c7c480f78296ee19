"""Process groups that a script forms at an address of its own: those of ``mp.spawn``, or of a launcher that it is.

An agent tells its ranks that its store listens at MASTER_ADDR and MASTER_PORT. Whatever a rank starts inherits that,
and it is wrong where the script has given another address: each process then waits for a store that nobody starts. Here
it holds for the agent's own address only: in a rank, in what ``multiprocessing`` starts, and in the environment of any
other process.

Why: decision 47.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.script_progress import separate_groups
from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.system import heartbeat
from kittrain.system.imports import after_import
from kittrain.system.local_port import local_port
from kittrain.torch_private.early import around_stores

SERVED: Final = "TORCHELASTIC_USE_AGENT_STORE"  # whether a store listens at MASTER_ADDR and MASTER_PORT
MASTER: Final = ("MASTER_ADDR", "MASTER_PORT")
TRAVELS_AS: Final = "kittrain"  # key in what a process passes on to those that multiprocessing starts


@dataclass(frozen=True)
class Job:
    """What a rank has been given, before its script changes it; the same in all processes that it starts.

    Args:
        given: the rank's environment at its start, as far as it is used here.
        rank_pid: the rank's process.
    """

    given: Mapping[str, str]
    rank_pid: int

    def __reduce__(self) -> tuple[Callable[..., Job], tuple[dict[str, str], int]]:
        """A process that ``multiprocessing`` starts follows the address, too: as soon as it has been sent this."""
        return follow, (dict(self.given), self.rank_pid)

    def serves(self, environ: Mapping[str, str]) -> bool:
        """Whether the address in an environment is that of the agent's store."""
        return all(environ.get(name) == self.given.get(name) for name in MASTER)

    def consistent(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment that says so, for a process that is to be started. Pure."""
        rest = {name: text for name, text in environ.items() if name != SERVED}
        served = SERVED in environ and SERVED in self.given and self.serves(environ)
        return {**rest, SERVED: self.given[SERVED]} if served else rest

    @property
    def world(self) -> int:
        """The number of ranks."""
        return int(self.given.get("WORLD_SIZE", "1"))


NAMES: Final = (*MASTER, SERVED, "WORLD_SIZE", "RANK", "KIT_HEARTBEAT_FILE")


def watch(environ: Mapping[str, str] = os.environ) -> None:
    """Follow the address in this rank, and in what it will start; to be called before its script runs."""
    job = follow({name: environ[name] for name in NAMES if name in environ}, os.getpid())
    after_import("multiprocessing.process", lambda module: _pass_on(module, job))


def _pass_on(module: ModuleType, job: Job) -> None:
    """Add it to what each process copies for those that it starts."""
    module.current_process()._config[TRAVELS_AS] = job  # noqa: SLF001  there is no public name


def follow(given: dict[str, str], rank_pid: int) -> Job:
    """Follow the address in this process."""
    job = Job(given, rank_pid)
    _follow_environment(job)
    after_import("subprocess", lambda module: _follow_in_programs(module, job))
    after_import("torch.distributed.rendezvous", lambda module: around_stores(module, functools.partial(_meet, job)))
    return job


def _follow_environment(job: Job) -> None:
    """Change SERVED along with the address: programs inherit both."""
    put = os.putenv

    @in_place_of(put)
    def putenv(name: Any, value: Any) -> None:
        put(name, value)
        if (changed := os.fsdecode(name)) in MASTER and SERVED in job.given:
            if job.serves({**os.environ, changed: os.fsdecode(value)}):
                os.environ[SERVED] = job.given[SERVED]
            else:
                os.environ.pop(SERVED, None)

    os.putenv = putenv  # what ``os.environ`` calls


def _follow_in_programs(module: ModuleType, job: Job) -> None:
    """The same for a program that gets an environment of its own."""
    start: Callable[..., None] = module.Popen.__init__

    @in_place_of(start)
    def start_consistently(self: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(env := kwargs.get("env"), Mapping) and SERVED in env:
            kwargs["env"] = job.consistent(env)
        start(self, *args, **kwargs)

    module.Popen.__init__ = start_consistently


def _meet(job: Job, create: Callable[..., Any], host: str, port: int, rank: int, world: int, *rest: Any) -> Any:
    """Create the store at which a group meets, as torch would outside of a job if it is not the agent's."""
    before = os.environ.get(SERVED)
    if job.serves(dict(zip(MASTER, (host, str(port)), strict=True))):
        wanted = job.given.get(SERVED)
    else:
        wanted = None
        if is_local(host):
            _tell(job, f"{host}:{port}", rank, world)
            port = _port(job, port)
    try:
        _set(wanted)
        return create(host, port, rank, world, *rest)
    finally:
        _set(before)


def _set(served: str | None) -> None:
    if served is None:
        os.environ.pop(SERVED, None)
    else:
        os.environ[SERVED] = served


def is_local(host: str) -> bool:
    """Whether an address is this machine's, on any machine."""
    return host in {"localhost", "::1", socket.gethostname()} or host.startswith("127.")


def _port(job: Job, port: int) -> int:
    """The port itself, unless a process of another job or user has it: its store must not be joined."""
    file = job.given.get("KIT_HEARTBEAT_FILE")
    if not file:
        return port
    found = local_port(port, Path(f"{file}.port-{port}"))
    if found.new and found.number != port:
        sys.stderr.write(f"note: port {port} is used by another process here; this group meets at {found.number}\n")
    return found.number


def _tell(job: Job, address: str, rank: int, world: int) -> None:
    """Warn, from the group's first process, if each of several ranks has such a group."""
    if rank or job.world == 1 or os.getpid() == job.rank_pid:
        return
    sys.stderr.write(f"warning: {separate_groups(job.world, world)} (at {address})\n")
    with suppress(OSError, KeyError):  # no agent reads it
        heartbeat.write_separate(Path(job.given["KIT_HEARTBEAT_FILE"]), world)
