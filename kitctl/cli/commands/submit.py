"""``kitctl submit``: run a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli import hints
from kitctl.cli.command import option, output_option, timeout_option
from kitctl.cli.commands.submission import objects, rendered
from kitctl.cli.common import echo, echo_job, echo_manifests, info, seconds
from kitctl.cli.options import JobCommand, job_options, templates_option
from kitctl.cli.target_options import announced, target_options
from kitctl.input.workloads import NAMED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kitctl.api.client import Client
    from kitctl.api.job import Job
    from kitctl.input.job_request import JobRequest

EPILOG = f"""\b
Examples:
  kitctl submit --nodes 3                       # the default workload, digits
  kitctl submit --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl submit --nodes 2:4 --follow -m my.module --lr 1e-3
  kitctl submit --nodes 2 --requirements requirements.txt -- train.py
  kitctl submit --workload mnist -- --epochs 2  # {NAMED}
  kitctl submit -- torchrun --nnodes=2 --nproc-per-node=4 train.py
  kitctl submit -f job.yaml --nodes 8 --dry-run=client -o yaml
  kitctl submit -f job.yaml --replace --resume  # again, from its last snapshot
"""
_NEXT_STEPS = """\
  kitctl logs -f {name}      its ranks' logs
  kitctl status -w {name}    its progress"""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so no words; no letters that look alike


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_options
@output_option("yaml", "json", "name")
@templates_option
@option(
    "--dry-run",
    group="Submit",
    type=click.Choice(["client", "server"]),
    default_text="off",
    help="Print what would be applied, as rendered, or, after the checks, as the API server has it; change nothing.",
)
@option(
    "--replace", group="Submit", is_flag=True, help="Delete a job of that name first; its snapshots and outputs stay."
)
@option("--no-checks", group="Submit", is_flag=True, help="Skip the checks whether the target can run the job.")
@option("--detach", "mode", group="Wait", flag_value="", help="Return immediately (the default).")
@option("--wait", "mode", group="Wait", flag_value="wait", help="Wait until the job ends; its result is the exit code.")
@option("--follow", "mode", group="Wait", flag_value="follow", help="Like --wait, and print the ranks' logs.")
@timeout_option
def command(
    job: JobRequest,
    connect: Callable[[], Client],
    output: str | None,
    templates: Path | None,
    dry_run: str | None,
    replace: bool,
    no_checks: bool,
    mode: str | None,
    timeout: str | None,
) -> None:
    """Run a script or a module on several nodes, as one job."""
    if dry_run == "client":
        echo_manifests(rendered(job, templates), output)
        return
    from kitctl.input import specfile

    client = announced(connect())
    spec = specfile.build(job, suffix="" if dry_run else _suffix())
    if dry_run == "server":
        found = client.preview(spec, replace=replace, checks=not no_checks, templates=templates, refuse=True)
        echo_manifests([change.after for change in found], output)
        return
    elsewhere = spec.namespace if spec.namespace not in {"", client.namespace} else ""
    hints.about(spec.name, elsewhere)
    submitted = client.submit(spec, replace=replace, checks=not no_checks, templates=templates)
    if mode:
        _watch(submitted, mode, seconds(timeout))
    elif output == "yaml":
        echo_manifests(objects(spec, templates, namespace=submitted.namespace), output)
    else:
        _report(submitted, output)


def _suffix() -> str:
    """A random suffix: two jobs of one script get different names."""
    from random import choices

    return "".join(choices(_SUFFIX_LETTERS, k=4))  # noqa: S311 - a name, not a secret


def _watch(job: Job, mode: str, timeout: float | None) -> None:
    from kitctl.cli.commands.logs import follow_until_end
    from kitctl.cli.commands.wait import wait_until_end

    if mode == "follow":
        info(f"job {job.name!r} submitted; following its logs (Ctrl-C leaves it running)")
        follow_until_end(job)
    else:
        info(f"job {job.name!r} submitted; waiting until it ends (Ctrl-C leaves it running)")
        wait_until_end(job, timeout)


def _report(job: Job, output: str | None) -> None:
    if output == "json":
        echo_job(job.state(), output)
    elif output == "name":
        echo(job.name)
    else:
        echo(f"job {job.name!r} submitted")
        info(_NEXT_STEPS.format(name=job.name))
