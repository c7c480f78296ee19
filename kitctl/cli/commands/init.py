"""``kitctl init``: a new script, copied from a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import echo, info

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

EPILOG = """\b
Examples:
  kitctl init mnist              # writes mnist.py; then: kitctl submit --nodes 3 -- mnist.py
  kitctl init lm train.py
  kitctl init digits train.py --force
"""


def _complete_workloads(_context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kitctl.cli import completions

    return completions.workloads(incomplete)


@click.command(cls=Command, epilog=EPILOG)
@click.argument("workload", metavar="WORKLOAD", shell_complete=_complete_workloads)
@click.argument("file", required=False, type=click.Path())
@option("--force", is_flag=True, help="Replace the file if it exists.")
def command(workload: str, file: str | None, force: bool) -> None:
    """Write a workload's script, as a starting point: allreduce, digits, mnist, text, lm or toy.

    FILE is WORKLOAD.py if it is not given.
    """
    from pathlib import Path

    from kitctl.input import workloads

    path = Path(file or f"{workload}.py")
    text = workloads.script(workload, path.name)
    _write(path, text, replace=force)
    echo(str(path))
    info(f"  kitctl submit --nodes 2 --follow -- {path}")


def _write(path: Path, text: str, *, replace: bool) -> None:
    """Write the file.

    Raises:
        UsageError: it exists and may not be replaced, or cannot be written.
    """
    from kitctl.base.errors import ConflictError, UsageError

    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConflictError(f"{path} exists", fix="name another file, or add --force to replace it") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error}", fix="name a file in a folder that you can write"
        ) from error
