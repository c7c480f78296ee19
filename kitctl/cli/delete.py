"""``kitctl delete``: end a job and delete it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import confirm, info, yes_option
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.job import Job

EPILOG = """\b
Examples:
  kitctl delete digits
  kitctl delete digits --snapshots -y     # and its snapshots
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("--snapshots", group="Snapshots", is_flag=True, help="Delete its snapshots too. This cannot be undone.")
@yes_option
def command(job: Job, snapshots: bool, yes: bool) -> None:
    """End a job if it runs, and delete it; its snapshots stay unless --snapshots is given."""
    if snapshots:
        confirm(f"delete {job.name!r} and all its snapshots?", yes=yes)
    deleted = job.delete(snapshots=snapshots)
    info(f"{job.name}: deleted" + (" with its snapshots" if deleted else "; its snapshots stay"))
