"""``kitctl list``: all jobs, one per line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, output_option
from kitctl.cli.common import echo, echo_json, info, look
from kitctl.cli.target_options import namespace_option, target_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from kitctl.api.client import Client

EPILOG = """\b
Examples:
  kitctl list
  kitctl list -A -o wide
  kitctl list --phase Running -o name | xargs -n1 kitctl cancel
  kitctl list -o json | jq -r '.items[] | select(.restarts > 0).name'
"""


def _complete_phases(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kitctl.cli import completions

    return completions.phases(incomplete)


@click.command(cls=Command, epilog=EPILOG)
@namespace_option
@option("-A", "--all-namespaces", group="Filter", is_flag=True, help="Jobs of all namespaces.")
@option(
    "--phase",
    group="Filter",
    metavar="PHASE",
    default_text="all",
    shell_complete=_complete_phases,
    help="Only jobs in this phase, as in Running.",
)
@target_options
@output_option("wide", "json", "name")
def command(
    connect: Callable[[], Client], namespace: str | None, all_namespaces: bool, phase: str | None, output: str | None
) -> None:
    """List jobs."""
    from kitctl.output import documents
    from kitctl.output.view import text

    client = connect()
    namespace = namespace or client.namespace
    found = client.jobs(namespace, all_namespaces=all_namespaces)
    jobs = [job for job in found if phase is None or job.phase.lower() == phase.lower()]
    if output == "json":
        echo_json(documents.job_list(jobs, time.time()))
    elif output == "name":
        echo("".join(f"{job.name}\n" for job in jobs), nl=False)
    elif jobs:
        echo("\n".join(text.job_list(jobs, time.time(), look(wide=output == "wide"), namespaces=all_namespaces)))
    else:
        info("no jobs in any namespace" if all_namespaces else f"no jobs in namespace {namespace!r}")
