"""``kitctl bundle``: what is known of a job, as one archive for a bug report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import echo, info, is_stdout, save
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
Each file is listed with its size before the archive is written. It has settings, state, cause, events, history, checks,
the ends of logs, the report, and what the cluster or this machine keeps about the job; no code, no Secret, no snapshot.
Values that look like secrets are replaced by [redacted]; look through it before you publish it.

\b
Examples:
  kitctl bundle digits                     # writes digits-bundle.tar.gz
  kitctl bundle digits --dry-run           # only lists what it would have
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option(
    *("-o", "--output"),
    group="Output",
    type=click.Path(dir_okay=False, path_type=Path),
    default_text="NAME-bundle.tar.gz",
    help="File to write.",
)
@option("--dry-run", group="Output", is_flag=True, help="List the files, and write nothing.")
def command(job: Job, output: Path | None, dry_run: bool) -> None:
    """Collect what is known of a job in one archive for a bug report, without secrets."""
    from kitctl.api import recording
    from kitctl.base.quantity import format_bytes
    from kitctl.output import bundle

    path = output or Path(f"{job.name}-bundle.tar.gz")
    record = recording.record(job)
    redactor = recording.redactor(record, os.environ)
    logs, further = recording.logs(job, record.state), recording.further(job, record)
    found = bundle.files(record, redactor, logs, further)
    say = info if is_stdout(path) and not dry_run else echo
    say("\n".join(bundle.listing(found)))
    info(f"{redactor.count} values were redacted")
    if dry_run:
        return
    file = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    name = f"{job.name}-bundle" if is_stdout(path) else file
    size = save(path, [bundle.archive(name, found, time=record.now)], private=True)
    info(f"written: {path} ({format_bytes(size)}); look through it before you publish it")
