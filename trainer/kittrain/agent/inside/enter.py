"""Runs a command where a rank is: ``python -P -m kittrain.agent.inside.enter --rank 3 -- CMD``, in its working folder.

The command gets the rank's variables (``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, packages) without those by which a
script takes part in the run: the process group's address, the heartbeat, the snapshots. ``kitctl exec`` runs it in the
agent's container. Linux only. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kittrain.agent.fault_injection import agent_here, rank_of
from kittrain.agent.inside.stacks import stack_file

MARK: Final = "KITCTL_EXEC"  # variable of a command and its children, by which it is found to be interrupted
# Prefixes of variables that make a script a part of the run.
TAKES_PART: Final = ("KIT_", "PET_", "TORCHELASTIC_", "MASTER_")
NOT_FOUND: Final = 127  # as a shell


def main() -> None:
    """Become the command; or interrupt one."""
    parser = argparse.ArgumentParser("kittrain.agent.inside.enter", description="Run a command where a rank is.")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--agent", type=int, metavar="PID", help="the agent (default: the only one that runs here)")
    parser.add_argument("--mark", default="", help="a word that names this command")
    parser.add_argument("--interrupt", action="store_true", help="interrupt the command of that name instead")
    parser.add_argument("command", nargs="*")
    args = parser.parse_args()
    if args.interrupt:
        interrupt(args.mark)
        return
    pid = rank_of(args.agent or agent_here(), args.rank)
    environ = environment(os.environ, variables(pid)) | ({MARK: args.mark} if args.mark else {})
    os.chdir(f"/proc/{pid}/cwd")
    with suppress(OSError):  # the folder's name, where it is still there
        os.chdir(Path.cwd())
        environ["PWD"] = str(Path.cwd())
    become(args.command, environ)


def environment(own: Mapping[str, str], rank: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: this process's, and the rank's variables, without those that take part."""
    return {name: text for name, text in {**own, **rank}.items() if not name.startswith(TAKES_PART)}


def variables(pid: int) -> dict[str, str]:
    """The variables that the agent gave a rank; none if it has ended."""
    if (file := stack_file(pid)) is not None:
        with suppress(OSError, ValueError):
            found: dict[str, str] = json.loads(file.with_suffix("").with_suffix(".env").read_text())
            return found
    return {}


def become(command: list[str], environ: Mapping[str, str]) -> None:
    """Replace this process by a command.

    Raises:
        SystemExit: there is no such command.
    """
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        sys.stderr.write(f"{command[0]}: command not found\n")
        sys.exit(NOT_FOUND)
    os.execve(program, command, dict(environ))  # noqa: S606  what the user asked for


def interrupt(mark: str) -> None:
    """Send SIGINT to each process of a command."""
    variable = f"{MARK}={mark}".encode()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if mark and variable in file.read_bytes().split(b"\0"):
                os.kill(int(file.parent.name), signal.SIGINT)


if __name__ == "__main__":
    main()
