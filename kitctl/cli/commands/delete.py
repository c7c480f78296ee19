"""``kitctl delete``: end a job and delete it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, yes_option
from kitctl.cli.common import confirm, info
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job
    from kitctl.state.phase import JobState

EPILOG = """\b
Examples:
  kitctl delete digits
  kitctl delete digits --snapshots -y             # and its snapshots, also if it is deleted already
  kitctl delete digits --snapshots --outputs -y   # and what its ranks wrote
"""


_OUTPUTS = (
    "Delete what its ranks wrote to --outputs, and to their copies of --workdir, too. On a cluster the former needs "
    "--snapshots, and the latter goes with the pods in any case. This cannot be undone."
)


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option(
    "--snapshots",
    group="Snapshots",
    is_flag=True,
    help="Delete its snapshots too, with --outputs among them. This cannot be undone.",
)
@option("--outputs", group="Snapshots", is_flag=True, help=_OUTPUTS)
@yes_option
def command(job: Job, snapshots: bool, outputs: bool, yes: bool) -> None:
    """End a job if it runs, and delete it; its snapshots and outputs stay unless their options are given."""
    known = _known(job)
    named = [what for what, given in (("all its snapshots", snapshots), ("all its outputs", outputs)) if given]
    if named:
        among = f", which include its outputs ({known.outputs})" if known and snapshots and _kept_among(known) else ""
        confirm(f"delete {job.name!r} and {' and '.join(named)}{among}?", yes=yes)
    deleted = job.delete(snapshots=snapshots, outputs=outputs)
    info(f"{job.name}: deleted" + (" with its snapshots" if deleted else _staying(known)))


def _known(job: Job) -> JobState | None:
    """Its state; None if that cannot be found out: deleting it reports why, or works all the same."""
    from kitctl.base.errors import KitError

    try:
        return job.state()
    except KitError:
        return None


def _staying(job: JobState | None) -> str:
    """What is said of its snapshots; nothing if it has none."""
    from kitctl.state.facts import OF_NODES

    if job is None or (job.snapshots and job.progress.step is None):
        return "; snapshots stay, if it has any"
    if job.snapshots in OF_NODES:
        return f"; what is in {job.mirror.url} stays" if job.mirror else ""
    progress = job.progress
    has_some = job.snapshots and not progress.of_own_loop and (progress.snapshot_step or progress.resumed_from)
    return "; its snapshots stay" if has_some else ""


def _kept_among(job: JobState) -> bool:
    """Whether its outputs are among its snapshots, as with --outputs."""
    return bool(job.snapshots) and job.outputs.startswith(job.snapshots)
