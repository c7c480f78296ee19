"""``kitctl snapshots``: the snapshots of a job, which may be running, ended or deleted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, output_option, yes_option
from kitctl.cli.commands.snapshot_options import snapshot_client
from kitctl.cli.common import confirm, echo, echo_json, info, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kitctl.api.snapshot_client import SnapshotClient
    from kitjob.history import SnapshotFacts

EPILOG = """\b
STEP may also be the name of a snapshot; without one, the newest valid snapshot is used.

\b
Examples:
  kitctl snapshots list digits
  kitctl snapshots verify digits
  kitctl snapshots show digits 120
  kitctl snapshots prune digits --keep 2
  kitctl snapshots export digits -o digits.safetensors
  kitctl snapshots list digits --claim data      # the job was deleted
"""


def _examples(*lines: str) -> str:
    return "\n".join(["\b", "Examples:", *(f"  kitctl snapshots {line}" for line in lines)])


which = click.argument("which", metavar="[STEP]", default="")


@click.group(epilog=EPILOG)
def command() -> None:
    """List, verify, show, prune and export the snapshots of a job."""


@command.command(
    "list",
    cls=Command,
    short_help="List all, the newest first",
    epilog=_examples("list digits", "list digits -o json | jq .items[0].step"),
)
@snapshot_client
@output_option("wide", "json", "name")
def list_(client: SnapshotClient, output: str | None) -> None:
    """List snapshots, the newest first, with damaged and unfinished ones."""
    _print(client.all(), output)


@command.command(
    cls=Command, short_help="Read and check every byte", epilog=_examples("verify digits", "verify digits 120")
)
@snapshot_client
@which
@output_option("wide", "json", "name")
def verify(client: SnapshotClient, which: str, output: str | None) -> None:
    """Read every byte of all snapshots, or of one; exit code 1 if one is damaged."""
    from kitctl.base.errors import KitError

    found = client.verify(which)
    _print(found, output)
    if bad := [one for one in found if one.condition not in {"verified", "unfinished"}]:
        fix = "a run skips these, and resumes from the newest valid one; to delete them: prune --damaged"
        raise KitError(f"{len(bad)} of {len(found)} cannot be used: {', '.join(one.name for one in bad)}", fix=fix)


@command.command(
    cls=Command, short_help="Show one's history and tensors", epilog=_examples("show digits", "show digits 120")
)
@snapshot_client
@which
@output_option("json")
def show(client: SnapshotClient, which: str, output: str | None) -> None:
    """Show a snapshot: its manifest, its history, and the model's tensors."""
    from kitctl.output import documents
    from kitctl.output.view import snapshots as view

    details = client.show(which)
    if output == "json":
        echo_json(documents.snapshot(details))
    else:
        echo("\n".join(view.page(details, time.time())))


@command.command(
    cls=Command,
    short_help="Delete all but the newest ones",
    epilog=_examples("prune digits --keep 2", "prune digits --keep 1 --damaged -y"),
)
@snapshot_client
@option(
    "--keep",
    group="Snapshots",
    type=click.IntRange(min=1),
    metavar="N",
    required=True,
    help="Number of valid snapshots to keep.",
)
@option("--damaged", group="Snapshots", is_flag=True, help="Delete damaged ones, too.")
@yes_option
def prune(client: SnapshotClient, keep: int, damaged: bool, yes: bool) -> None:
    """Delete all but the newest, and the last finite one; every byte of those that stay is verified first."""
    found = client.prunable(keep, damaged=damaged)
    if not found:
        info(f"{client.store.name}: nothing to delete")
        return
    if not yes:
        info("\n".join(_lines(found)))
    confirm(f"delete these {len(found)}?", yes=yes)
    deleted = client.prune(keep, found, damaged=damaged)
    info(f"{client.store.name}: deleted {', '.join(one.name for one in deleted)}")


@command.command(
    cls=Command,
    short_help="Write the model's weights to a local file",
    epilog=_examples("export digits -o digits.pt", "export digits 120 -o digits.safetensors"),
)
@snapshot_client
@which
@option(
    *("-o", "--output"),
    group="Output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write.",
)
@option(
    *("--format", "form"),
    group="Output",
    type=click.Choice(["pt", "safetensors"]),
    default_text="from the file extension",
    help="Format of the file.",
)
def export(client: SnapshotClient, which: str, output: Path, form: str | None) -> None:
    """Write the model's weights to a local file: a plain state dict, without optimizer and history."""
    save(output, client.export(which, form or ("safetensors" if output.suffix == ".safetensors" else "pt")))
    info(f"{output}: written")


def _print(found: Sequence[SnapshotFacts], output: str | None) -> None:
    from kitctl.output import documents

    if output == "json":
        echo_json(documents.snapshot_list(found))
    elif output == "name":
        echo("".join(f"{one.name}\n" for one in found), nl=False)
    elif found:
        echo("\n".join(_lines(found, wide=output == "wide")))
    else:
        info("no snapshots yet; checkpoints that a script or its framework writes are not listed")


def _lines(found: Sequence[SnapshotFacts], *, wide: bool = False) -> list[str]:
    from kitctl.output.view import snapshots as view

    return view.table(found, time.time(), wide=wide)
