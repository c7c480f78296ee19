"""``kitctl audit``: the proof that a job counted each sample exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import encode, out
from kitctl.cli.keeping import kept_job
from kitctl.cli.options import output_option

if TYPE_CHECKING:
    from kitctl.cli.keeping import Keeper

EPILOG = """\b
Exit codes: 0 proved, 1 not.

\b
Examples:
  kitctl audit digits
  kitctl audit digits -o wide     # the history, entry by entry
  kitctl audit digits -o json | jq .proofs[0].counted
"""


@click.command(epilog=EPILOG)
@kept_job
@output_option("wide", "json")
def command(keeper: Keeper, output: str | None) -> None:
    """Prove that each sample of each epoch was counted exactly once, across every restart and resize."""
    from kitctl.errors import KitError
    from kitctl.snapshots import Audit
    from kitctl.view import audit as view

    audit = keeper.answer(Audit, "audit")
    out(encode(audit) if output == "json" else "\n".join(view.page(audit, wide=output == "wide")))
    if not audit.holds:
        raise KitError("it is not proved that each sample was counted exactly once", fix=view.fix(audit))
