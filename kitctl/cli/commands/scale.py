"""``kitctl scale``: change the number of nodes of an elastic job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.base.quantity import pluralize
from kitctl.cli.command import Command, option
from kitctl.cli.common import info
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
Examples:
  kitctl submit --name digits --nodes 2:4
  kitctl scale digits --nodes 3
"""


@click.command(cls=Command, epilog=EPILOG)
@option(
    "--nodes",
    group="Resources",
    type=click.IntRange(min=1),
    metavar="N",
    required=True,
    help="Within the job's MIN:MAX.",
)
@named_job
def command(job: Job, nodes: int) -> None:
    """Change the number of nodes of an elastic job; no sample is lost or repeated."""
    job.scale(nodes)
    info(f"{job.name}: scaled to {pluralize(nodes, 'node')}; watch it: kitctl status -w {job.name}")
