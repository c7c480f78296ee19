"""``kitctl render``: the Kubernetes manifests of a job, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import output_option
from kitctl.cli.commands.submission import rendered
from kitctl.cli.common import echo_manifests
from kitctl.cli.options import JobCommand, job_options, templates_option

if TYPE_CHECKING:
    from pathlib import Path

    from kitctl.input.job_request import JobRequest

EPILOG = """\b
Examples:
  kitctl render --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl render -f job.yaml --kind PyTorchJob -o json
  kitctl render -f job.yaml | kubectl apply --server-side -f -
  kitctl render -f job.yaml --templates ours    # with changed manifests
"""


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@output_option("yaml", "json", "name", default="yaml")
@templates_option
def command(job: JobRequest, output: str | None, templates: Path | None) -> None:
    """Print the Kubernetes manifests of a job; no cluster is needed."""
    echo_manifests(rendered(job, templates), output)
