"""``kitctl restart``: start all nodes of a job anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, say
from kitctl.cli.options import namespace_option, target_option

if TYPE_CHECKING:
    from kitctl.targets import TargetName

EPILOG = """\b
Examples:
  kitctl restart digits        # after a failure, from the last snapshot
"""


@click.command(epilog=EPILOG)
@job_argument
@namespace_option
@target_option
def command(name: str, namespace: str, target: TargetName | None) -> None:
    """Start all nodes anew, from the last snapshot; a failed or cancelled job too."""
    connect(target).restart(namespace, name)
    say(f"{name}: restarting; kitctl status -w {name} shows it")
