"""Runs a command line: the one place that turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from kitctl.base.errors import KitError
from kitctl.cli import cli
from kitctl.cli.common import info

INTERRUPTED = 130  # the exit code after SIGINT
PIPE_CLOSED = 141  # likewise after SIGPIPE, as of a command in front of ``| head``
_ROOM = "make room there, or name another folder"
_MACHINES = {  # errors of files that are this machine's, and what to do about them
    errno.EACCES: "let this user read and write it, or run kitctl as the one whose it is",
    errno.EPERM: "let this user read and write it, or run kitctl as the one whose it is",
    errno.EROFS: "mount it for writing, or name another folder",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.EIO: "see dmesg: the disk does not answer as it should",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (``sys.argv`` by default) and return its exit code."""
    stdout = sys.stdout
    try:
        result = cli.main(args=argv, prog_name=_program(), standalone_mode=False)
    except KitError as error:
        _print(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SystemExit:
        if sys.stdout is stdout:
            raise
        return PIPE_CLOSED  # click has replaced the closed pipe
    except Exception as error:
        if os.environ.get("KITCTL_DEBUG"):
            raise
        if isinstance(error, OSError) and _is_of_output(error):
            info(f"error: the output cannot be written: {error.strerror}")
        elif isinstance(error, OSError) and (told := _of_machine(error)):
            info(told)
        else:
            info(f"error: {type(error).__name__}: {error}")
            info("this is a bug in kitctl; KITCTL_DEBUG=1 shows the traceback")
        return 1
    return result if isinstance(result, int) else 0


def _program() -> str:
    """How usage strings name the program: as a plugin of kubectl, if that runs it."""
    return "kubectl kit" if os.path.basename(sys.argv[0]) == "kubectl-kit" else "kitctl"  # noqa: PTH119 - pathlib is slow


def _of_machine(error: OSError) -> str:
    """What this machine has refused, and the fix; empty if that may be an error of kitctl."""
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd()
        return "error: the current folder is gone\nfix: cd to one that is there"
    if fix := _MACHINES.get(error.errno or 0):
        where = f": {error.filename}" if error.filename else ""
        return f"error: {error.strerror}{where}\nfix: {fix}"
    return ""


def _is_of_output(error: OSError) -> bool:
    """Whether it was raised where everything is printed."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code is click.utils.echo.__code__


def _print(error: KitError) -> None:
    info(f"error: {error}")
