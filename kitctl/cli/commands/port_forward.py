"""``kitctl port-forward``: reach a port of a rank's node from this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import info
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
Examples:
  kitctl port-forward digits 6006                  # TensorBoard that rank 0 has started
  kitctl port-forward digits --rank 3 8888:9999    # port 9999 of rank 3's node is 127.0.0.1:8888 here
  kitctl port-forward digits 0:6006                # any port that is free here
"""
_PORTS = 65535


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("--rank", group="Job", type=click.IntRange(min=0), metavar="N", default=0, help="The rank.")
@click.argument("ports", metavar="[LOCAL:]REMOTE")
def command(job: Job, rank: int, ports: str) -> None:
    """Forward a port of this machine to a rank's node, until Ctrl-C; only this machine can use it."""
    local, remote = _parse(ports)
    job.forward_port(rank, local, remote, info)


def _parse(text: str) -> tuple[int, int]:
    first, _, second = text.partition(":")
    for part, low in ((first, 0 if second else 1), (second or first, 1)):
        if not (part.isascii() and part.isdecimal() and low <= int(part) <= _PORTS):
            raise click.BadParameter(f"{text!r} is not [LOCAL:]REMOTE, as in 8888:6006", param_hint="PORTS")
    return int(first), int(second or first)
