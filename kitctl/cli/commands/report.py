"""``kitctl report``: all that is known of a job, as one page of HTML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import info, save
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
The page needs no other file and no network: it can be mailed, stored and printed. It shows the cause, curves, what each
node did when, where the time went, faults with their recoveries, the first failure with its log, events, the proof of
the samples, nodes and settings. Secrets that are recognized are not in it, and only you can read the file.

\b
Examples:
  kitctl report digits                     # writes digits-report.html
  kitctl report digits -o monday.html
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option(
    *("-o", "--output"),
    group="Output",
    type=click.Path(dir_okay=False, path_type=Path),
    default_text="NAME-report.html",
    help="File to write.",
)
def command(job: Job, output: Path | None) -> None:
    """Write one self-contained page about a job, while it runs or after its end."""
    from kitctl.api import recording
    from kitctl.base.quantity import format_bytes
    from kitctl.output.view.report import page

    path = output or Path(f"{job.name}-report.html")
    record = recording.record(job)
    redactor = recording.redactor(record, os.environ)
    size = save(path, [page(record, redactor).encode()], private=True)
    for name, reason in record.missing.items():
        info(f"without {name}: {reason}")
    info(f"written: {path} ({format_bytes(size)}); open it in a browser")
