"""``kitctl version``: the versions of kitctl, its image and Python."""

from __future__ import annotations

import platform

import click

import kitctl
from kitctl import names
from kitctl.cli.command import Command
from kitctl.cli.common import echo

EPILOG = """\b
Examples:
  kitctl version
"""


@click.command(cls=Command, epilog=EPILOG)
def command() -> None:
    """Print the versions that a bug report needs."""
    echo(f"kitctl {kitctl.__version__}")
    echo(f"image  {names.DEFAULT_IMAGE}")
    echo(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
