"""``kitctl suspend``: stop a job so that it can go on later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, say
from kitctl.cli.options import namespace_option, target_option

if TYPE_CHECKING:
    from kitctl.targets import TargetName

EPILOG = """\b
Examples:
  kitctl suspend digits
"""


@click.command(epilog=EPILOG)
@job_argument
@namespace_option
@target_option
def command(name: str, namespace: str, target: TargetName | None) -> None:
    """Take a snapshot, then stop all nodes; resume goes on from there."""
    say(f"{name}: draining its nodes")
    connect(target).suspend(namespace, name)
    say(f"{name}: suspended; kitctl resume {name} goes on")
