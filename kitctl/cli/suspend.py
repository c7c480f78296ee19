"""``kitctl suspend``: stop a job so that it can go on later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import say
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob

EPILOG = """\b
Examples:
  kitctl suspend digits
"""


@click.command(epilog=EPILOG)
@named_job
def command(job: NamedJob) -> None:
    """Take a snapshot, then stop all nodes; resume goes on from there."""
    say(f"{job.name}: draining its nodes")
    job.target.suspend(job.namespace, job.name)
    say(f"{job.name}: suspended; kitctl resume {job.name} goes on")
