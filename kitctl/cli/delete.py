"""``kitctl delete``: end a job and forget it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, say
from kitctl.cli.options import namespace_option, target_option

if TYPE_CHECKING:
    from kitctl.targets import TargetName

EPILOG = """\b
Examples:
  kitctl delete digits
  kitctl delete digits --snapshots -y     # what it learned, too
"""


@click.command(epilog=EPILOG)
@job_argument
@namespace_option
@target_option
@click.option("--snapshots", is_flag=True, help="Delete its snapshots, too. They cannot be brought back.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(name: str, namespace: str, target: TargetName | None, snapshots: bool, yes: bool) -> None:
    """End a job if it runs, and delete it; its snapshots stay unless --snapshots is given."""
    if snapshots and not yes and sys.stdin.isatty():
        click.confirm(f"delete {name!r} and all its snapshots?", abort=True, err=True)
    connect(target).delete(namespace, name, snapshots=snapshots)
    say(f"{name}: deleted" + (" with its snapshots" if snapshots else "; its snapshots stay"))
