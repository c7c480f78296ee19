"""``kitctl goodput``: where a job's node-seconds went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, output_option
from kitctl.cli.common import echo, echo_json, info
from kitctl.cli.target_options import job_or_all, namespace_option, target_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kitctl.api.client import Client
    from kitctl.state.goodput.result import Goodput

EPILOG = """\b
Every node-second since the submission is in exactly one row; docs/goodput.md says how each is measured.
Exit codes: 0, or 1 if more than 0.5 % is unknown or measured twice, or a clock was set during the run.

\b
Examples:
  kitctl goodput digits
  kitctl goodput digits -o wide     # recoveries by fault
  kitctl goodput -A                 # all jobs of all namespaces
  kitctl goodput digits -o json | jq '.buckets[] | select(.seconds > 0)'
"""


@click.command(cls=Command, epilog=EPILOG)
@job_or_all
@namespace_option
@option("-A", "--all-namespaces", group="Filter", is_flag=True, help="All jobs of all namespaces that have a history.")
@target_options
@output_option("wide", "json")
def command(
    connect: Callable[[], Client], name: str | None, namespace: str | None, all_namespaces: bool, output: str | None
) -> None:
    """Show what a job's node-seconds were spent on, and its effective training time ratio."""
    from kitctl.base.errors import KitError, UsageError
    from kitctl.base.quantity import duration
    from kitctl.output import documents
    from kitctl.output.view import timeline as view
    from kitctl.state.goodput.account import account

    if (name is None) != all_namespaces:
        raise UsageError("name one job, or give -A", fix="kitctl goodput JOB, or kitctl goodput -A")
    client = connect()
    if name is None:
        all_found = list(_all(client))
        if output == "json":
            echo_json(documents.goodput_list(all_found))
        elif all_found:
            echo("\n".join(view.goodput_list(all_found, namespaces=True)))
        else:
            info("no job has a history")
        return
    found = account(client.job(name, namespace).history())
    if output == "json":
        echo_json(documents.goodput(found))
    else:
        echo("\n".join(view.goodput(found, wide=output == "wide")))
    if jump := found.clock_jump_seconds:
        what = f"these numbers are wrong: a clock was set by about {duration(jump)} during the run, or is wrong"
        raise KitError(what, fix="keep clocks right (NTP), and set none while a job runs")
    if not found.holds:
        what = f"{found.unknown_seconds:.1f} node-seconds are unknown, {found.overlap_seconds:.1f} are measured twice"
        raise KitError(what, fix="kitctl events shows where; pods that are deleted take what they knew with them")


def _all(client: Client) -> Iterator[Goodput]:
    """Of all jobs that have a history; says which have none."""
    from kitctl.base.errors import KitError
    from kitctl.state.goodput.account import account

    for one in client.jobs(client.namespace, all_namespaces=True):
        try:
            yield account(client.job(one.name, one.namespace).history())
        except KitError as error:
            info(f"{one.namespace}/{one.name}: {error.message}")
