"""``kitctl status``: the state of a job and of its nodes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, output_option
from kitctl.cli.common import echo_job, shows_unicode
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job
    from kitctl.state.phase import JobState

EPILOG = """\b
With --exit-code: 0 succeeded, 100 failed, 101 not finished, 103 cancelled. No such job is always 102.

\b
Examples:
  kitctl status digits
  kitctl status digits -w
  kitctl status digits -o json | jq .progress.loss
  kitctl status digits -w -o json | jq --unbuffered -r .phase
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@output_option("wide", "json", "name")
@option("-w", "--watch", group="Output", is_flag=True, help="Refresh until the job ends; -o json: a line per change.")
@option("--exit-code", group="Output", is_flag=True, help="Set the exit code from the job's phase.")
def command(job: Job, output: str | None, watch: bool, exit_code: bool) -> None:
    """Show a job's phase, progress, nodes and ranks."""
    from kitctl.api.job import error_for_phase

    if watch:
        seen = _watch(job, output)
    else:
        seen = job.state()
        echo_job(seen, output)
    if exit_code and (error := error_for_phase(seen)):
        raise error


def _watch(job: Job, output: str | None) -> JobState:
    """In a terminal one page that is refreshed; elsewhere a page for each change of phase, with -o json a line."""
    from kitctl.cli.commands.wait import detach

    states = job.states()
    try:
        if sys.stdout.isatty() and output in {None, "wide"} and sys.platform != "win32":
            from kitctl.output.view import live

            return live.watch(states, wide=output == "wide", unicode=shows_unicode())
        seen = next(states)
        echo_job(seen, output, stream=True)
        for after in states:
            if after.phase != seen.phase:
                echo_job(after, output, stream=True)
            seen = after
    except KeyboardInterrupt:
        detach(job.name)
    return seen
