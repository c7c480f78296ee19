"""``kitctl diff``: what submitting a job would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import out, say
from kitctl.cli.options import JobCommand, job_options
from kitctl.cli.place import connect, target_options
from kitctl.cli.submission import prepare

if TYPE_CHECKING:
    from kitctl.cli.options import JobInput
    from kitctl.targets import Where

EPILOG = """\b
Exit codes: 0 nothing would change, 1 something would.

\b
Examples:
  kitctl diff -f job.yaml --nodes 4
  kitctl diff -f job.yaml && echo as it is
"""


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_options
def command(job: JobInput, where: Where) -> int:
    """Show what submitting would change, as the API server itself would merge it; nothing is changed."""
    from kitctl.view import changes

    target = connect(where)
    found = target.preview(prepare(job, target.namespace))
    lines = [line for change in found for line in changes.lines(change.before, change.after)]
    out("".join(lines), nl=False)
    for refusal in dict.fromkeys(change.refusal for change in found if change.refusal):
        say(f"the cluster would refuse: {refusal}\nfix: a job's pods cannot be changed: kitctl submit --replace")
    return 1 if lines else 0
