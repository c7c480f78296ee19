"""``kitctl stacks``: where each rank of a job is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, output_option
from kitctl.cli.common import echo, echo_json
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
Examples:
  kitctl stacks digits              # all ranks, those at the same place together
  kitctl stacks digits --rank 3 --full
  kitctl stacks digits -o json | jq '.nodes[].ranks[] | [.rank, .line]'
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option(
    "--rank",
    "ranks",
    group="Filter",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Only this rank (repeatable).",
)
@option(
    "--full",
    group="Output",
    is_flag=True,
    help="All frames of all threads; without it, frames of libraries are counted.",
)
@output_option("json")
def command(job: Job, ranks: tuple[int, ...], full: bool, output: str | None) -> None:
    """Show the Python stack of each rank, also while they hang; the ranks continue."""
    from kitctl.output import documents
    from kitctl.output.view import stacks as view

    found = job.stacks(frozenset(ranks))
    if output == "json":
        echo_json(documents.stacks(found))
    else:
        echo("\n".join(view.page(found, full=full)))
