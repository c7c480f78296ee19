"""``kitctl schema``: the JSON Schema of a job file, for editors and validators."""

from __future__ import annotations

import click

from kitctl.cli.command import Command

EPILOG = """\b
Examples:
  kitctl schema > job.schema.json
  # first line of a job file, for editors: yaml-language-server: $schema=job.schema.json
"""


@click.command(cls=Command, epilog=EPILOG)
def command() -> None:
    """Print the JSON Schema (2020-12) of a job file."""
    from kitctl.cli.common import echo, encode
    from kitctl.output.schema import json_schema

    echo(encode(json_schema()))
