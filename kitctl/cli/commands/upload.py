"""``kitctl upload``: send a folder for jobs that kitctl does not submit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import echo
from kitctl.cli.options import JobCommand, job_options
from kitctl.cli.target_options import target_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from kitctl.api.client import Client
    from kitctl.input.job_request import JobRequest

EPILOG = """\b
Examples:
  kitctl upload -f job.yaml --workdir . > code.yaml
  helm install my-run charts/training-job -f job.yaml -f code.yaml
  kitctl upload --workdir . --claim team > code.yaml  # above 900 KiB
"""


# Where the folder is sent does not depend on the job's size, and nothing runs.
_BESIDE = frozenset({"nodes", "gpus-per-node", "procs-per-node", "memory", "resume"})


@click.command(cls=JobCommand, epilog=EPILOG, beside=_BESIDE)
@job_options
@target_options
def command(job: JobRequest, connect: Callable[[], Client]) -> None:
    """Send a job's workdir and requirements to the cluster, and print the value by which the chart finds it."""
    from kitctl.input import specfile
    from kitctl.render import objects as render

    echo(render.to_yaml([{"code": connect().send_code(specfile.build(job))}]), nl=False)
