"""``kitctl submit``: from flags and a job file to a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import encode, manifests, out, say, seconds, timeout_option
from kitctl.cli.options import JobCommand, job_options, output_option
from kitctl.cli.place import connect, target_options
from kitctl.cli.submission import objects, prepare, rendered, warn

if TYPE_CHECKING:
    from kitctl.cli.options import JobInput
    from kitctl.targets import Submission, Target, Where

EPILOG = """\b
Examples:
  kitctl submit --nodes 3                         # the default workload, digits
  kitctl submit --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl submit --nodes 2:4 --follow -m my.module --lr 1e-3
  kitctl submit -f job.yaml --nodes 8 --dry-run=client -o yaml
  kitctl submit -f job.yaml --replace --resume    # anew, from its last snapshot
"""
_COME_BACK = """\
  kitctl logs -f {name}{where}      its ranks' logs
  kitctl status -w {name}{where}    its progress"""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so no words; nothing that looks like another


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_options
@output_option("yaml", "json", "name")
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server"]),
    help="Print what would be applied, as rendered or as the API server would have it; change nothing.",
)
@click.option("--replace", is_flag=True, help="Delete a job of that name first; its snapshots stay.")
@click.option("--no-checks", is_flag=True, help="Do not ask the cluster first whether it could ever run the job.")
@click.option("--detach", "how", flag_value="detach", default=True, help="Return at once (the default).")
@click.option("--wait", "how", flag_value="wait", help="Return when the job has ended, with its exit code.")
@click.option("--follow", "how", flag_value="follow", help="As --wait, and print the ranks' logs.")
@timeout_option
def command(
    job: JobInput,
    where: Where,
    output: str | None,
    dry_run: str | None,
    replace: bool,
    no_checks: bool,
    how: str,
    timeout: str | None,
) -> None:
    """Run a script (or a module) on several nodes, as one job."""
    if dry_run == "client":
        manifests(rendered(job), output)
        return
    from kitctl.targets import remarks

    target = connect(where, announce=True)
    suffix = "" if dry_run else _suffix()
    submission = prepare(job, target.namespace, suffix, replace=replace, checks=not no_checks)
    warn(remarks(where, submission))
    if dry_run == "server":
        manifests([change.after for change in target.preview(submission)], output)
        return
    target.submit(submission)
    _report(target, submission, output, how, seconds(timeout))


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
        manifests(objects(submission), output)
    elif output == "json":
        out(encode(watching.current(target, namespace, name)))
    elif output == "name":
        out(name)
    else:
        out(f"job {name!r} submitted")
        say(_COME_BACK.format(name=name, where="" if namespace == target.namespace else f" -n {namespace}"))
