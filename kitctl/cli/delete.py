"""``kitctl delete``: end a job and forget it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import confirm, say
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob

EPILOG = """\b
Examples:
  kitctl delete digits
  kitctl delete digits --snapshots -y     # what it learned, too
"""


@click.command(epilog=EPILOG)
@named_job
@click.option("--snapshots", is_flag=True, help="Delete its snapshots, too. They cannot be brought back.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(job: NamedJob, snapshots: bool, yes: bool) -> None:
    """End a job if it runs, and delete it; its snapshots stay unless --snapshots is given."""
    if snapshots:
        confirm(f"delete {job.name!r} and all its snapshots?", yes=yes)
    gone = job.target.delete(job.namespace, job.name, snapshots=snapshots)
    say(f"{job.name}: deleted" + (" with its snapshots" if gone else "; its snapshots stay"))
