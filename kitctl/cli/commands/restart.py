"""``kitctl restart``: restart all nodes of a job."""

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
  kitctl restart digits        # after a failure, from the last snapshot
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
def command(job: Job) -> None:
    """Restart all nodes from the last snapshot; a failed or cancelled job, too."""
    job.restart()
    info(f"{job.name}: restarting; watch it: kitctl status -w {job.name}")
