"""``kitctl audit``: prove that a job counted each sample exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, output_option
from kitctl.cli.commands.snapshot_options import snapshot_client
from kitctl.cli.common import echo, echo_json

if TYPE_CHECKING:
    from kitctl.api.snapshot_client import SnapshotClient

EPILOG = """\b
Exit codes: 0 proved, 1 not, or nothing to prove: no snapshots, or batches that do not come from kittrain.Data.

\b
Examples:
  kitctl audit digits
  kitctl audit digits -o wide     # with the ledger of the history
  kitctl audit digits -o json | jq .proofs[0].counted
"""


@click.command(cls=Command, epilog=EPILOG)
@snapshot_client
@output_option("wide", "json")
def command(client: SnapshotClient, output: str | None) -> None:
    """Prove that each sample of each epoch was counted exactly once, across every restart and resize."""
    from kitctl.base.errors import KitError
    from kitctl.output import documents
    from kitctl.output.view import audit as view

    audit = client.audit()
    if output == "json":
        echo_json(documents.audit(audit))
    else:
        echo("\n".join(view.page(audit, wide=output == "wide")))
    if not audit.holds:
        raise KitError("not proved that each sample was counted exactly once", fix=view.fix(audit))
