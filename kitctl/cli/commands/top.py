"""``kitctl top``: what each rank of a job uses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from kitctl.cli.command import Command, option, output_option
from kitctl.cli.common import clear, echo, echo_json, look
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

PAUSE: Final = 1.0  # seconds from one look to the next, which takes a second itself

EPILOG = """\b
CPU is in cores: 1.00 is one core that is always busy. Each look takes a second.

\b
Examples:
  kitctl top digits
  kitctl top digits -w
  kitctl top digits -o json | jq '.nodes[].use.ranks[] | [.rank, .cpu, .memory]'
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("-w", "--watch", group="Output", is_flag=True, help="Look again until it is interrupted; -o json: a line each.")
@output_option("json")
def command(job: Job, watch: bool, output: str | None) -> None:
    """Show what each rank uses: processor, memory and, where known, its GPU."""
    while True:
        _show(job, output, watch=watch)
        if not watch:
            return
        time.sleep(PAUSE)


def _show(job: Job, output: str | None, *, watch: bool) -> None:
    from kitctl.output import documents
    from kitctl.output.view import usage as view

    found = job.usage()
    if output == "json":
        echo_json(documents.usage(found), stream=watch)
        return
    width = look().width
    if watch and width:
        clear()
    echo("\n".join(view.page(found, width)))
