"""``kitctl render``: the Kubernetes objects of a job, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import manifests
from kitctl.cli.options import JobCommand, job_options, output_option
from kitctl.cli.submission import rendered

if TYPE_CHECKING:
    from kitctl.jobinput import JobInput

EPILOG = """\b
Examples:
  kitctl render --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl render -f job.yaml --kind PyTorchJob -o json
  kitctl render -f job.yaml | kubectl apply --server-side -f -
"""


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@output_option("yaml", "json", "name")
def command(job: JobInput, output: str | None) -> None:
    """Print the Kubernetes objects that a job would be; nothing is sent anywhere."""
    manifests(rendered(job), output)
