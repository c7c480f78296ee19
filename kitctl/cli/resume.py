"""``kitctl resume``: go on with a suspended job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import say
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob

EPILOG = """\b
Examples:
  kitctl resume digits && kitctl logs -f digits
"""


@click.command(epilog=EPILOG)
@named_job
def command(job: NamedJob) -> None:
    """Start a suspended job again, from its last snapshot."""
    job.target.resume(job.namespace, job.name)
    say(f"{job.name}: resumed; kitctl status -w {job.name} shows it")
