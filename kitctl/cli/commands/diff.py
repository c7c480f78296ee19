"""``kitctl diff``: what submitting a job would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import output_option
from kitctl.cli.common import echo, echo_json, info
from kitctl.cli.options import JobCommand, job_options, templates_option
from kitctl.cli.target_options import target_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kitctl.api.client import Client
    from kitctl.input.job_request import JobRequest

EPILOG = """\b
Exit codes: 0 no changes, 1 changes.

\b
Examples:
  kitctl diff -f job.yaml --nodes 4
  kitctl diff -f job.yaml && echo unchanged
"""


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_options
@output_option("json", default="diff")
@templates_option
def command(job: JobRequest, connect: Callable[[], Client], output: str | None, templates: Path | None) -> int:
    """Show what submitting would change, as the API server would merge it; nothing is changed."""
    from kitctl.input import specfile
    from kitctl.output import documents
    from kitctl.output.view import changes

    found = connect().preview(specfile.build(job), templates=templates)
    lines = [line for change in found for line in changes.lines(change.before, change.after)]
    if output == "json":
        echo_json(documents.diff(found))
        return 1 if lines else 0
    echo("".join(lines), nl=False)
    for refusal in dict.fromkeys(change.refusal for change in found if change.refusal):
        info(f"the cluster would reject this: {refusal}\nfix: pods of a job cannot be changed: kitctl submit --replace")
    return 1 if lines else 0
