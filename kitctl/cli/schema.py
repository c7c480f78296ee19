"""``kitctl schema``: what a job file may hold, for editors and checkers."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  kitctl schema > job.schema.json
  # first line of a job file, for editors: yaml-language-server: $schema=job.schema.json
"""


@click.command(epilog=EPILOG)
def command() -> None:
    """Print the JSON Schema (2020-12) of a job file."""
    from kitctl.cli.common import encode, out
    from kitctl.schema import json_schema

    out(encode(json_schema()))
