"""``kitctl doctor``: what stands in the way of a job, before it is submitted or while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import encode, out
from kitctl.cli.options import JobCommand, job_options, output_option
from kitctl.cli.place import connect, target_options
from kitctl.cli.submission import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitctl.cli.options import JobInput
    from kitctl.doctor import Finding
    from kitctl.targets import Target, Where

EPILOG = """\b
A single word that is no file is the name of a job that is there; anything else describes one.
Exit codes: 0 no problem (warnings are none), 1 a problem.

\b
Examples:
  kitctl doctor                                    # could the default workload run?
  kitctl doctor --nodes 3 --gpus-per-node 4 -- train.py
  kitctl doctor -f job.yaml -o json
  kitctl doctor digits                             # how is this job?
"""


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_options
@output_option("json")
def command(job: JobInput, where: Where, output: str | None) -> None:
    """Check what a job needs, or how one does: each finding with its fix; nothing is changed."""
    from kitctl.errors import KitError
    from kitctl.view import doctor as view

    seen: list[Finding] = []
    findings = _kept(_findings(job, connect(where, announce=True)), seen)
    if output == "json":
        out(encode(list(findings)))
    else:
        for line in view.lines(findings):
            out(line)
    if problems := [finding.check for finding in seen if finding.verdict == "problem"]:
        raise KitError(f"{len(problems)} of {len(seen)} checks found a problem: {', '.join(problems)}")


def _findings(job: JobInput, target: Target) -> Iterator[Finding]:
    from kitctl.doctor import job as running

    if name := _named(job):
        return running.look_at(target.job(job.flags.get("namespace") or target.namespace, name))
    return target.examine(prepare(job, target.namespace))


def _named(job: JobInput) -> str:
    """The job that is meant, if it is there already and not described."""
    words = [*job.flags.get("command", ()), *job.flags.get("args", ())]
    return words[0] if len(words) == 1 and "." not in words[0] and not Path(words[0]).exists() else ""


def _kept(findings: Iterator[Finding], seen: list[Finding]) -> Iterator[Finding]:
    """Findings as they are made, each put down."""
    for finding in findings:
        seen.append(finding)
        yield finding
