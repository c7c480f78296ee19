"""``kitctl cancel``: end a job; its logs and snapshots stay."""

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
  kitctl cancel digits
  kitctl restart digits        # start it again
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
def command(job: Job) -> None:
    """End a job; its logs, its spec and its snapshots stay."""
    job.state()  # fails if there is no such job
    info(f"{job.name}: asking its nodes to drain")
    job.cancel()
    info(f"{job.name}: cancelled; to continue: kitctl restart {job.name}")
