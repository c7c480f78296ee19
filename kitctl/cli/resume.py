"""``kitctl resume``: go on with a suspended job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, say
from kitctl.cli.options import namespace_option, target_option

if TYPE_CHECKING:
    from kitctl.targets import TargetName

EPILOG = """\b
Examples:
  kitctl resume digits && kitctl logs -f digits
"""


@click.command(epilog=EPILOG)
@job_argument
@namespace_option
@target_option
def command(name: str, namespace: str, target: TargetName | None) -> None:
    """Start a suspended job again, from its last snapshot."""
    connect(target).resume(namespace, name)
    say(f"{name}: resumed; kitctl status -w {name} shows it")
