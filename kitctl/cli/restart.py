"""``kitctl restart``: start all nodes of a job anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import say
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob

EPILOG = """\b
Examples:
  kitctl restart digits        # after a failure, from the last snapshot
"""


@click.command(epilog=EPILOG)
@named_job
def command(job: NamedJob) -> None:
    """Start all nodes anew, from the last snapshot; a failed or cancelled job too."""
    job.target.restart(job.namespace, job.name)
    say(f"{job.name}: restarting; kitctl status -w {job.name} shows it")
