"""``kitctl scale``: more or fewer nodes for an elastic job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import say
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob

EPILOG = """\b
Examples:
  kitctl submit --name digits --nodes 2:4
  kitctl scale digits --nodes 3
"""


@click.command(epilog=EPILOG)
@click.option("--nodes", type=click.IntRange(min=1), required=True, help="Within the job's MIN:MAX.")
@named_job
def command(job: NamedJob, nodes: int) -> None:
    """Change how many nodes an elastic job runs with; no sample is lost or repeated."""
    job.target.scale(job.namespace, job.name, nodes)
    say(f"{job.name}: {nodes} nodes from now on; kitctl status -w {job.name} shows it")
