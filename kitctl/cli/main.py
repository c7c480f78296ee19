"""Runs a command line: the one place that turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kitctl.base.errors import KitError
from kitctl.cli import cli
from kitctl.cli.common import info

INTERRUPTED = 130  # the exit code after SIGINT
PIPE_CLOSED = 141  # likewise after SIGPIPE, as of a command in front of ``| head``


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
        else:
            info(f"error: {type(error).__name__}: {error}")
            info("this is a bug in kitctl; KITCTL_DEBUG=1 shows the traceback")
        return 1
    return result if isinstance(result, int) else 0


def _program() -> str:
    """How usage strings name the program: as a plugin of kubectl, if that runs it."""
    return "kubectl kit" if os.path.basename(sys.argv[0]) == "kubectl-kit" else "kitctl"  # noqa: PTH119 - pathlib is slow


def _is_of_output(error: OSError) -> bool:
    """Whether it was raised where everything is printed."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code is click.utils.echo.__code__


def _print(error: KitError) -> None:
    info(f"error: {error}")
