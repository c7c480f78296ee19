"""``kitctl status``: how a job is, as a whole and rank by rank."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import show
from kitctl.cli.options import output_option
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob
    from kitctl.state import JobState

EPILOG = """\b
With --exit-code: 0 succeeded, 100 failed, 101 not finished, 103 cancelled. No such job is always 102.

\b
Examples:
  kitctl status digits
  kitctl status digits -w
  kitctl status digits -o json | jq .progress.loss
"""


@click.command(epilog=EPILOG)
@named_job
@output_option("wide", "json", "name")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again until the job has ended.")
@click.option("--exit-code", is_flag=True, help="Say the job's state by the exit code, too.")
def command(job: NamedJob, output: str | None, watch: bool, exit_code: bool) -> None:
    """Show a job's phase, progress, nodes and ranks."""
    from kitctl import watching

    if watch:
        seen = _watch(job, output)
    else:
        seen = watching.current(job.target, job.namespace, job.name)
        show(seen, output)
    if exit_code and (error := watching.verdict(seen)):
        raise error


def _watch(job: NamedJob, output: str | None) -> JobState:
    """In a terminal one page that changes; elsewhere a page for each change of phase."""
    from kitctl import watching
    from kitctl.cli.wait import leave

    states = watching.states(job.target, job.namespace, job.name)
    try:
        if sys.stdout.isatty() and output is None:
            from kitctl.view import live

            return live.watch(states)
        seen = next(states)
        show(seen, output)
        for after in states:
            if after.phase != seen.phase:
                show(after, output)
            seen = after
    except KeyboardInterrupt:
        leave(job.name)
    return seen
