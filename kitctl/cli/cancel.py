"""``kitctl cancel``: end a job, and keep what it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, say
from kitctl.cli.options import namespace_option, target_option

if TYPE_CHECKING:
    from kitctl.targets import TargetName

EPILOG = """\b
Examples:
  kitctl cancel digits
  kitctl restart digits        # thought better of it
"""


@click.command(epilog=EPILOG)
@job_argument
@namespace_option
@target_option
def command(name: str, namespace: str, target: TargetName | None) -> None:
    """End a job; its logs, its spec and its snapshots stay."""
    say(f"{name}: draining its nodes")
    connect(target).cancel(namespace, name)
    say(f"{name}: cancelled; kitctl restart {name} would go on from its last snapshot")
