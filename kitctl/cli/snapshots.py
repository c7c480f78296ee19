"""``kitctl snapshots``: the saved states of a job, which may be running, ended or gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import confirm, encode, out, say
from kitctl.cli.keeping import kept_job
from kitctl.cli.options import output_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kitctl.cli.keeping import Keeper
    from kitctl.snapshots import Snapshot

EPILOG = """\b
STEP may also be the name of a snapshot; without one the newest good one is meant.

\b
Examples:
  kitctl snapshots list digits
  kitctl snapshots verify digits
  kitctl snapshots show digits 120
  kitctl snapshots prune digits --keep 2
  kitctl snapshots export digits -o digits.safetensors
  kitctl snapshots list digits --claim data      # the job is gone
"""

which = click.argument("which", metavar="[STEP]", default="")


@click.group(epilog=EPILOG)
def command() -> None:
    """List, verify, show, prune and export the snapshots of a job."""


@command.command("list")
@kept_job
@output_option("wide", "json", "name")
def list_(keeper: Keeper, output: str | None) -> None:
    """List them, the newest first, with those that are damaged or half written."""
    from kitctl.snapshots import Snapshot

    _print(keeper.answer(list[Snapshot], "list"), output)


@command.command()
@kept_job
@which
@output_option("wide", "json", "name")
def verify(keeper: Keeper, which: str, output: str | None) -> None:
    """Read every byte of them, or of one, and name what is damaged (exit 1 then)."""
    from kitctl.errors import KitError
    from kitctl.snapshots import Snapshot

    found = keeper.answer(list[Snapshot], "verify", *filter(None, [which]))
    _print(found, output)
    if bad := [one for one in found if one.condition not in {"verified", "unfinished"}]:
        fix = "a run passes over these, and goes on from the newest one that verifies; prune --damaged removes them"
        raise KitError(f"{len(bad)} of {len(found)} cannot be used: {', '.join(one.name for one in bad)}", fix=fix)


@command.command()
@kept_job
@which
@output_option("json")
def show(keeper: Keeper, which: str, output: str | None) -> None:
    """Show what one of them says about itself: its history, and the model's tensors."""
    from kitctl.snapshots import Details
    from kitctl.view import snapshots as view

    details = keeper.answer(Details, "show", *filter(None, [which]))
    out(encode(details) if output == "json" else "\n".join(view.page(details, time.time())))


@command.command()
@kept_job
@click.option("--keep", type=click.IntRange(min=1), required=True, help="How many of the newest that verify stay.")
@click.option("--damaged", is_flag=True, help="Delete damaged ones, too.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def prune(keeper: Keeper, keep: int, damaged: bool, yes: bool) -> None:
    """Delete all but the newest; every byte of those that stay is verified first."""
    from kitctl.snapshots import Snapshot

    words = ("prune", "--keep", str(keep), *(["--damaged"] if damaged else []))
    found = keeper.answer(list[Snapshot], *words)
    if not found:
        say(f"{keeper.kept.name}: nothing to delete")
        return
    if not yes:
        say("\n".join(_lines(found)))
    confirm(f"delete these {len(found)}?", yes=yes)
    gone = keeper.answer(list[Snapshot], *words, *(f"--drop={one.name}" for one in found))
    say(f"{keeper.kept.name}: deleted {', '.join(one.name for one in gone)}")


@command.command()
@kept_job
@which
@click.option(
    *("-o", "--output"), type=click.Path(dir_okay=False, path_type=Path), required=True, help="The file to write."
)
@click.option("--format", "form", type=click.Choice(["pt", "safetensors"]), help="By default as the file's name ends.")
def export(keeper: Keeper, which: str, output: Path, form: str | None) -> None:
    """Write the model's weights to a file of this machine: a plain state dict, without optimizer and history."""
    form = form or ("safetensors" if output.suffix == ".safetensors" else "pt")
    _save(output, keeper.stream("export", *filter(None, [which]), "--format", form))
    say(f"{output}: written")


def _save(path: Path, pieces: Iterator[bytes]) -> None:
    """Write a file, whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            file.writelines(pieces)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _print(found: Sequence[Snapshot], output: str | None) -> None:
    if output == "json":
        out(encode(found))
    elif output == "name":
        out("".join(f"{one.name}\n" for one in found), nl=False)
    elif found:
        out("\n".join(_lines(found, wide=output == "wide")))
    else:
        say("no snapshots yet")


def _lines(found: Sequence[Snapshot], *, wide: bool = False) -> list[str]:
    from kitctl.view import snapshots as view

    return view.table(found, time.time(), wide=wide)
