"""``kitctl events``: what happened to a job, in one timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, output_option
from kitctl.cli.common import echo, echo_json
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
What the cluster or the supervisor knows, and what nodes have written next to the snapshots, on one clock.

\b
Examples:
  kitctl events digits
  kitctl events digits -o wide    # with the time of day, and whole causes
  kitctl events digits -o json | jq '.items[] | select(.what == "fault")'
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@output_option("wide", "json")
def command(job: Job, output: str | None) -> None:
    """Show what happened to a job: started, joined, faults, recoveries, snapshots, ends."""
    from kitctl.output import documents
    from kitctl.output.view import timeline as view
    from kitctl.state import history

    known = job.history()
    found = history.events(known)
    if output == "json":
        echo_json(documents.event_list(known, found))
    else:
        echo("\n".join(view.events(found, wide=output == "wide")))
