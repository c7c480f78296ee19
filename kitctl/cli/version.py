"""``kitctl version``: which kitctl this is, and what it would run."""

from __future__ import annotations

import platform

import click

import kitctl
from kitctl import names

EPILOG = """\b
Examples:
  kitctl version
"""


@click.command(epilog=EPILOG)
def command() -> None:
    """Print the versions that matter in a report of a problem."""
    click.echo(f"kitctl {kitctl.__version__}")
    click.echo(f"image  {names.DEFAULT_IMAGE}")
    click.echo(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
