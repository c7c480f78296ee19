"""The entry point: the one place that turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from kitctl.cli import cli
from kitctl.cli.common import info
from kitctl.errors import KitError

INTERRUPTED: Final = 130  # the exit code after SIGINT
GC_THRESHOLD: Final = 20_000  # new objects between two garbage collections; Python's default is 700 or 2,000


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (``sys.argv`` by default) and return its exit code."""
    try:
        with _fewer_collections():
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


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Collect garbage less often: a verb's imports make many objects and free none."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _print(error: KitError) -> None:
    info(f"error: {error.message}")
    if error.fix:
        info(f"fix: {error.fix}")


if __name__ == "__main__":
    sys.exit(main())
