"""``kitctl status``: how a job is, as a whole and rank by rank."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, job_argument, show
from kitctl.cli.options import namespace_option, output_option, target_option

if TYPE_CHECKING:
    from kitctl.state import JobState
    from kitctl.targets import Target, TargetName

EPILOG = """\b
With --exit-code: 0 succeeded, 100 failed, 101 not finished, 103 cancelled. No such job is always 102.

\b
Examples:
  kitctl status digits
  kitctl status digits -w
  kitctl status digits -o json | jq .progress.loss
"""


@click.command(epilog=EPILOG)
@job_argument
@namespace_option
@target_option
@output_option("json", "name")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again until the job has ended.")
@click.option("--exit-code", is_flag=True, help="Say the job's state by the exit code, too.")
def command(
    name: str, namespace: str, target: TargetName | None, output: str | None, watch: bool, exit_code: bool
) -> None:
    """Show a job's phase, progress, nodes and ranks."""
    from kitctl import watching

    chosen = connect(target)
    if watch:
        job = _watch(chosen, namespace, name, output)
    else:
        job = watching.current(chosen, namespace, name)
        show(job, output)
    if exit_code and (error := watching.verdict(job)):
        raise error


def _watch(target: Target, namespace: str, name: str, output: str | None) -> JobState:
    """In a terminal one page that changes; elsewhere a page for each change of phase."""
    from kitctl import watching
    from kitctl.cli.wait import leave

    states = watching.states(target, namespace, name)
    try:
        if sys.stdout.isatty() and output is None:
            from kitctl.view import live

            return live.watch(states)
        job = next(states)
        show(job, output)
        for after in states:
            if after.phase != job.phase:
                show(after, output)
            job = after
    except KeyboardInterrupt:
        leave(name)
    return job
