"""Runs a command line: the one place that turns errors into messages and exit codes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from kitctl.base.errors import KitError
from kitctl.cli import cli
from kitctl.cli.common import info

INTERRUPTED = 130  # the exit code after SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (``sys.argv`` by default) and return its exit code."""
    try:
        result = cli.main(args=argv, prog_name="kitctl", standalone_mode=False)
    except KitError as error:
        _print(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("KITCTL_DEBUG"):
            raise
        info(f"error: {type(error).__name__}: {error}")
        info("this is a bug in kitctl; KITCTL_DEBUG=1 shows the traceback")
        return 1
    return result if isinstance(result, int) else 0


def _print(error: KitError) -> None:
    info(f"error: {error.message}")
    if error.fix:
        info(f"fix: {error.fix}")
