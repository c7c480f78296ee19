"""``kitctl version``: the versions of kitctl, its image and Python."""

from __future__ import annotations

import platform

import click

import kitctl
from kitctl.cli.command import Command, output_option
from kitctl.cli.common import echo, echo_json
from kitjob.names import DEFAULT_IMAGE

EPILOG = """\b
Examples:
  kitctl version
  kitctl version -o json | jq -r .chart    # the folder of the Helm chart
"""


@click.command(cls=Command, epilog=EPILOG)
@output_option("json")
def command(output: str | None) -> None:
    """Print the versions that a bug report needs."""
    if output == "json":
        from kitctl.output import documents

        echo_json(documents.version())
        return
    echo(f"kitctl {kitctl.__version__}")
    echo(f"image  {DEFAULT_IMAGE}")
    echo(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
