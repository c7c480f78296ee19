"""``kitctl why``: the cause of a job's state, its fix, and what shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli import hints
from kitctl.cli.command import Command, output_option
from kitctl.cli.common import echo, echo_json
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
Examples:
  kitctl why digits              # while it runs, or after its end
  kitctl why digits -o json
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@output_option("json")
def command(job: Job, output: str | None) -> None:
    """Say why a job waits, stands still or has failed: one cause, one fix, and what shows it."""
    from kitctl.output import documents
    from kitctl.output.view.why import lines

    state = job.state()
    found = job.why(state)
    if output == "json":
        echo_json(documents.why(found, state))
    else:
        for line in lines(found, state):
            echo(hints.addressed(line))
