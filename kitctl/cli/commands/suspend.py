"""``kitctl suspend``: stop a job; it can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command
from kitctl.cli.common import info
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
Examples:
  kitctl suspend digits
  kitctl resume digits
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
def command(job: Job) -> None:
    """Take a snapshot, then stop all nodes; resume continues from there."""
    job.state()  # fails if there is no such job
    info(f"{job.name}: asking its nodes to drain")
    job.suspend()
    info(f"{job.name}: suspended; to continue: kitctl resume {job.name}")
