"""``kitctl submit``: from flags and a job file to a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import connect, encode, say, seconds, show, timeout_option
from kitctl.cli.options import JobCommand, job_options, output_option, target_option

if TYPE_CHECKING:
    from kitctl.cli.options import JobInput
    from kitctl.targets import Submission, Target, TargetName

EPILOG = """\b
Examples:
  kitctl submit --nodes 3                         # the default workload, digits
  kitctl submit --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl submit --nodes 2:4 --follow -m my.module --lr 1e-3
  kitctl submit -f job.yaml --nodes 8 --dry-run=client -o yaml
"""
_COME_BACK = """
job {name!r} submitted
  kitctl logs -f {name}      its ranks' logs
  kitctl status -w {name}    its progress"""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so no words; nothing that looks like another


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_option
@output_option("yaml", "json", "name")
@click.option("--dry-run", type=click.Choice(["client"]), help="Print what would be applied; change nothing.")
@click.option("--detach", "how", flag_value="detach", default=True, help="Return at once (the default).")
@click.option("--wait", "how", flag_value="wait", help="Return when the job has ended, with its exit code.")
@click.option("--follow", "how", flag_value="follow", help="As --wait, and print the ranks' logs.")
@timeout_option
def command(
    job: JobInput,
    target: TargetName | None,
    output: str | None,
    dry_run: str | None,
    how: str,
    timeout: str | None,
) -> None:
    """Run a script (or a module) on several nodes, as one job."""
    from pathlib import Path

    from kitctl import specfile
    from kitctl.targets import Submission

    suffix = "" if dry_run else _suffix()
    spec = specfile.build(job, suffix=suffix)
    folder = Path.cwd()
    submission = Submission(spec=spec, sources=specfile.sources(spec, folder), folder=folder)
    if dry_run:
        _print_manifests(submission, output or "yaml")
        return
    chosen = connect(target, announce=True)
    chosen.submit(submission)
    _report(chosen, submission, output, how, seconds(timeout))


def _suffix() -> str:
    """What tells jobs of one script apart."""
    from random import choices

    return "".join(choices(_SUFFIX_LETTERS, k=4))  # noqa: S311 - a name, not a secret


def _report(target: Target, submission: Submission, output: str | None, how: str, timeout: float | None) -> None:
    from kitctl import watching
    from kitctl.cli.logs import follow_to_the_end
    from kitctl.cli.wait import wait_to_the_end

    namespace, name = submission.spec.namespace, submission.spec.name
    if how == "follow":
        say(f"job {name!r} submitted; its logs follow (Ctrl-C leaves it running)")
        follow_to_the_end(target, namespace, name)
    elif how == "wait":
        say(f"job {name!r} submitted; waiting for its end (Ctrl-C leaves it running)")
        wait_to_the_end(target, namespace, name, timeout)
    elif output == "yaml":
        _print_manifests(submission, output)
    elif output == "json":
        click.echo(encode(watching.current(target, namespace, name)))
    elif output == "name":
        click.echo(name)
    else:
        show(watching.current(target, namespace, name), output)
        say(_COME_BACK.format(name=name))


def _print_manifests(submission: Submission, output: str) -> None:
    from kitctl import render

    objects = render.manifests(submission.spec, submission.sources)
    printers = {"yaml": render.to_yaml, "json": render.to_json, "name": render.to_names}
    click.echo(printers[output](objects), nl=False)
