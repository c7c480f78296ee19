"""``kitctl resume``: start a suspended job again."""

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
  kitctl resume digits && kitctl logs -f digits
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
def command(job: Job) -> None:
    """Start a suspended job again, from its last snapshot.

    One that runs gets the ConfigMap that it reports to again, if somebody has deleted that; it is not disturbed.
    """
    job.resume()
    info(f"{job.name}: resumed; watch it: kitctl status -w {job.name}")
