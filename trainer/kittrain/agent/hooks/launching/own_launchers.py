"""Launchers that a script starts in a rank, torchrun for example: each forms a world of its own, of which none is told.

Accelerate's ``notebook_launcher`` and ``torch.distributed.run`` call torch's launcher in the rank itself; others are
started as programs.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.script_progress import separate_groups
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import NO_PROCESSES
from kittrain.system import heartbeat
from kittrain.system.imports import after_import

ACCELERATE: Final = r"accelerate([-\s]|\.commands\.)launch"
LAUNCHER: Final = re.compile(rf"(^|[/\s])(torchrun|torch\.distributed\.(run|launch)|{ACCELERATE})\s+\S")
ON_CPUS: Final = re.compile(rf"{ACCELERATE}(\s+(?!\S+\.py\b)\S+)*?\s+--cpu\s")  # an option before the script
CONFIGURED: Final = re.compile(r"--config_file[=\s]+(\S+)")
COUNT: Final = re.compile(r"^\W*num_(processes|machines)\W+(\d+)", re.MULTILINE)  # in YAML and JSON alike
PROCESSES: Final = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes)[=\s]+(\d+)")
NODES: Final = re.compile(r"--(?:nnodes|num[-_]machines)[=\s]+(?:1:)?(\d+)")


def watch(environ: Mapping[str, str] = os.environ) -> None:
    """Warn about launchers in this rank, if it is one of several; to be called before its script runs."""
    world = int(environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return
    tell = functools.partial(_tell, world, environ.get("KIT_HEARTBEAT_FILE"), os.getpid())
    after_import("torch.distributed.launcher.api", lambda module: _in_this_process(module, tell))
    after_import("subprocess", lambda module: _as_program(module, tell))
    after_import("torch.multiprocessing.spawn", lambda module: watch_calls(module, "start_processes", _started))


def processes(command: object, environ: Mapping[str, str] = os.environ) -> int:
    """How many processes a command starts on this machine alone; 0: it is no launcher, or one for several machines.

    It is 0, too, for ``accelerate launch --cpu`` without a number of processes: it starts one, with the rank's
    variables, which takes the rank's place in the job's group.

    Args:
        command: as ``subprocess`` takes it.
        environ: of this process.
    """
    if isinstance(command, Sequence) and not isinstance(command, str | bytes):
        words = shlex.join(os.fsdecode(word) for word in command if isinstance(word, str | bytes | os.PathLike))
    else:
        words = command if isinstance(command, str) else ""
    nodes = NODES.search(words)
    if not LAUNCHER.search(words) or (nodes and int(nodes[1]) > 1):
        return 0
    number = PROCESSES.search(words)
    configured = _configured(words, environ) if re.search(ACCELERATE, words) else {}
    if int(configured.get("machines", 1)) > 1 and not nodes:
        return 0
    count = max(int(number[1] if number else configured.get("processes", 1)), 1)
    return 0 if count == 1 and ON_CPUS.search(words) else count


def _configured(words: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The numbers of processes and machines in Accelerate's configuration, as far as it has them.

    Without a file on the command line it is the default one, which ``accelerate config`` writes, and which Accelerate
    ignores where it is told ``--cpu``.
    """
    home = Path(environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
    named = CONFIGURED.search(words)
    default = [home / "accelerate" / f"default_config.{end}" for end in ("json", "yaml")]
    for file in [Path(named[1])] if named else [] if ON_CPUS.search(words) else default:
        with suppress(OSError, RuntimeError, ValueError):  # no such file, no home, not text
            return dict(COUNT.findall(file.expanduser().read_text(encoding="utf-8")))
    return {}


def _started(_function: object, _args: object = (), nprocs: int = 1, *_rest: object, **_more: object) -> None:
    if nprocs == 0:  # as torch.cuda.device_count() is on a machine without GPUs
        sys.stderr.write(f"note: {NO_PROCESSES}\n")


def _in_this_process(module: ModuleType, tell: Callable[[int], None]) -> None:
    launch: Callable[..., Any] = module.launch_agent

    @in_place_of(launch)
    def launch_agent(config: Any, *args: Any, **kwargs: Any) -> Any:
        if config.max_nodes == 1:
            tell(config.nproc_per_node)
        return launch(config, *args, **kwargs)

    module.launch_agent = launch_agent  # type: ignore[attr-defined]


def _as_program(module: ModuleType, tell: Callable[[int], None]) -> None:
    start: Callable[..., None] = module.Popen.__init__

    @in_place_of(start)
    def start_and_tell(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        if number := processes(args):
            tell(number)
        start(self, args, *rest, **kwargs)

    module.Popen.__init__ = start_and_tell


def _tell(world: int, file: str | None, rank_pid: int, number: int) -> None:
    """Warn in the log and, by the agent, in the job's status; a process that the rank has forked is not the rank."""
    if os.getpid() != rank_pid:
        return
    sys.stderr.write(f"warning: {separate_groups(world, number)}\n")
    with suppress(OSError, TypeError):  # no agent reads it
        heartbeat.write_separate(Path(file or ""), number)
