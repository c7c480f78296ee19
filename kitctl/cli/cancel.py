"""``kitctl cancel``: end a job, and keep what it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import say
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob

EPILOG = """\b
Examples:
  kitctl cancel digits
  kitctl restart digits        # thought better of it
"""


@click.command(epilog=EPILOG)
@named_job
def command(job: NamedJob) -> None:
    """End a job; its logs, its spec and its snapshots stay."""
    say(f"{job.name}: draining its nodes")
    job.target.cancel(job.namespace, job.name)
    say(f"{job.name}: cancelled; kitctl restart {job.name} would go on from its last snapshot")
