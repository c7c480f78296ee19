"""``kitctl scale``: more or fewer nodes for an elastic job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, say
from kitctl.cli.options import namespace_option, target_option

if TYPE_CHECKING:
    from kitctl.targets import TargetName

EPILOG = """\b
Examples:
  kitctl submit --name digits --nodes 2:4
  kitctl scale digits --nodes 3
"""


@click.command(epilog=EPILOG)
@job_argument
@click.option("--nodes", type=click.IntRange(min=1), required=True, help="Within the job's MIN:MAX.")
@namespace_option
@target_option
def command(name: str, nodes: int, namespace: str, target: TargetName | None) -> None:
    """Change how many nodes an elastic job runs with; no sample is lost or repeated."""
    connect(target).scale(namespace, name, nodes)
    say(f"{name}: {nodes} nodes from now on; kitctl status -w {name} shows it")
