"""``kitctl list``: all jobs, one a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import encode, out, say
from kitctl.cli.options import output_option
from kitctl.cli.place import connect, namespace_option, target_options

if TYPE_CHECKING:
    from kitctl.targets import Where

EPILOG = """\b
Examples:
  kitctl list
  kitctl list -A -o wide
  kitctl list --phase Running -o name | xargs -n1 kitctl cancel
"""


@click.command(epilog=EPILOG)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option("--phase", help="Only jobs in this phase, as in Running.")
@target_options
@output_option("wide", "json", "name")
def command(where: Where, namespace: str | None, all_namespaces: bool, phase: str | None, output: str | None) -> None:
    """List jobs."""
    from kitctl import state
    from kitctl.view import text

    target = connect(where)
    namespace = namespace or target.namespace
    found = target.jobs(None if all_namespaces else namespace)
    jobs = [job for job in map(state.derive, found) if phase is None or job.phase.lower() == phase.lower()]
    if output == "json":
        out(encode(jobs))
    elif output == "name":
        out("".join(f"{job.name}\n" for job in jobs), nl=False)
    elif jobs:
        lines = text.job_list(jobs, time.time(), namespaces=all_namespaces, wide=output == "wide")
        out("\n".join(lines))
    else:
        place = "in any namespace" if all_namespaces else f"in namespace {namespace!r}"
        say(f"no jobs {place}")
