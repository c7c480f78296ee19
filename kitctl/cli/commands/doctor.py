"""``kitctl doctor``: what prevents a job from running well, before it is submitted or while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kitctl.cli import hints
from kitctl.cli.command import output_option
from kitctl.cli.common import echo, echo_json
from kitctl.cli.options import JobCommand, job_options
from kitctl.cli.target_options import announced, target_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from click.shell_completion import CompletionItem

    from kitctl.api.client import Client
    from kitctl.input.job_request import JobRequest
    from kitctl.state.checks import Finding

EPILOG = """\b
A single word that is not a file is the name of an existing job; anything else describes a new one.
Exit codes: 0: no problems (warnings allowed), 1: problems.

\b
Examples:
  kitctl doctor                       # can the default workload run?
  kitctl doctor --nodes 3 --gpus-per-node 4 -- train.py
  kitctl doctor -f job.yaml -o json
  kitctl doctor digits                # is this job healthy?
  kitctl doctor digits -n team -o json
"""


class DoctorCommand(JobCommand):
    """Options after the name of an existing job are kitctl's; those after a script are the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options before the name."""
        end = self.end_of_options(args)
        name, rest = args[end : end + 1], args[end + 1 :]
        if name and _may_be_job(name[0]) and self.are_options(rest):
            args = [*args[:end], *rest, *name]
        return super().parse_args(ctx, args)

    def complete_words(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """A script, or an existing job."""
        from click.shell_completion import CompletionItem

        from kitctl.cli import completions

        # Zsh drops an empty value, and takes the next item for this one's parts.
        script = [CompletionItem(incomplete or "./", type=one.type) for one in super().complete_words(ctx, incomplete)]
        return [*script, *completions.jobs(ctx, incomplete)]


@click.command(cls=DoctorCommand, epilog=EPILOG)
@job_options
@target_options
@output_option("json")
def command(job: JobRequest, connect: Callable[[], Client], output: str | None) -> None:
    """Check the prerequisites of a job, or diagnose a running one: each problem with its fix; nothing is changed."""
    from kitctl.base.errors import KitError
    from kitctl.output import documents
    from kitctl.output.view import doctor as view

    seen: list[Finding] = []
    findings = _recorded(_findings(job, announced(connect())), seen)
    if output == "json":
        echo_json(documents.doctor(findings))
    else:
        for line in view.lines(findings):
            echo(hints.addressed(line))
    if problems := [finding.check for finding in seen if finding.verdict == "problem"]:
        raise KitError(f"{len(problems)} of {len(seen)} checks found a problem: {', '.join(problems)}")


def _findings(job: JobRequest, client: Client) -> Iterable[Finding]:
    from kitctl.input import specfile

    if name := _existing_job(job):
        hints.about(name, job.flags.get("namespace") or "")
        return client.job(name, job.flags.get("namespace")).check()
    return client.check(specfile.build(job))


def _existing_job(job: JobRequest) -> str:
    """The name of an existing job; empty: the command line describes a new one."""
    words = [*job.flags.get("command", ()), *job.flags.get("args", ())]
    return words[0] if len(words) == 1 and _may_be_job(words[0]) else ""


def _may_be_job(word: str) -> bool:
    return not word.startswith("-") and "." not in word and not Path(word).exists()


def _recorded(findings: Iterable[Finding], seen: list[Finding]) -> Iterator[Finding]:
    """Findings as they arrive, each appended to ``seen``."""
    for finding in findings:
        seen.append(finding)
        yield finding
