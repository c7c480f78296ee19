"""``kitctl version``: which kitctl this is, and what it would run."""

from __future__ import annotations

import platform

import click

import kitctl
from kitctl import names
from kitctl.cli.common import out

EPILOG = """\b
Examples:
  kitctl version
"""


@click.command(epilog=EPILOG)
def command() -> None:
    """Print the versions that matter in a report of a problem."""
    out(f"kitctl {kitctl.__version__}")
    out(f"image  {names.DEFAULT_IMAGE}")
    out(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
