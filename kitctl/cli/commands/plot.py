"""``kitctl plot``: the curves of one or several jobs, in the terminal or as a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import echo_json, echo_plot, info, save, seconds
from kitctl.cli.target_options import job_names, namespace_option, target_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kitctl.api.client import Client
    from kitctl.state.series import By

METRICS = ("loss", "throughput", "step-time", "world-size", "data-wait", "memory")
EPILOG = """\b
Faults are drawn as lines, what they cost as a shade; snapshots and changes of the size at the axis. Several
jobs are drawn over each other. Without --metric: loss, throughput, step time and ranks, as far as they are known.

\b
Examples:
  kitctl plot digits
  kitctl plot digits --metric loss --since 30m
  kitctl plot digits-1 digits-2 --by step    # one over the other
  kitctl plot digits -o digits.svg           # a picture for a browser or a page
  kitctl plot digits -o digits.png           # with resvg-py: pip install 'kittrain[png]'
  kitctl plot digits -o json | jq '.items[0].rows[-1].loss'
"""


@click.command(cls=Command, epilog=EPILOG)
@job_names
@namespace_option
@option(
    "--metric", "metrics", group="Filter", type=click.Choice(METRICS), multiple=True, help="Only this one; may repeat."
)
@option("--by", group="Filter", type=click.Choice(["time", "step"]), default="time", help="The horizontal axis.")
@option("--since", group="Filter", metavar="TIME", help="Only the last TIME, as in 90s or 10m.")
@target_options
@option(
    "-o", "--output", metavar="FILE.svg|FILE.png|json", help="Write a picture to a file, or print the series as JSON."
)
def command(
    connect: Callable[[], Client],
    names: tuple[str, ...],
    namespace: str | None,
    metrics: tuple[str, ...],
    by: By,
    since: str | None,
    output: str | None,
) -> None:
    """Draw the loss, throughput, step time and size of jobs, with faults, resizes and snapshots."""
    from kitctl.base.errors import KitError
    from kitctl.output import documents
    from kitctl.state import series

    path = _file(output)
    last = seconds(since) or 0.0
    client = connect()
    jobs = [client.job(name, namespace).history() for name in dict.fromkeys(names)]
    if output == "json":
        echo_json(documents.series_list((job, *series.recent(job, last)) for job in jobs))
        return
    picture = series.picture(jobs, metrics=metrics, by=by, since=last)
    if not picture.metrics:
        what = " or ".join(metrics) or "value"
        raise KitError(f"no {what} is known of {', '.join(names)}", fix="kitctl events shows how far it got")
    if path:
        from kitctl.base.redaction import Redactor, secrets_of
        from kitctl.output.view import drawing

        shown = series.redacted(picture, Redactor(secrets_of(dict(os.environ))))
        save(path, [_drawn(drawing.svg(shown), path)], private=True)
        info(f"written: {path}")
    else:
        echo_plot(picture)


def _file(output: str | None) -> Path | None:
    from pathlib import Path

    from kitctl.base.errors import UsageError

    if output in {None, "json"}:
        return None
    path = Path(str(output))
    if path.suffix.lower() not in {".svg", ".png"}:
        raise UsageError(f"-o {output}: plots are written as .svg or .png, or printed as json", fix="give -o FILE.svg")
    return path


def _drawn(svg: str, path: Path) -> bytes:
    """The picture as a file's name says."""
    from kitctl.output.view import raster

    return raster.png(svg) if path.suffix.lower() == ".png" else svg.encode()
