"""``kitctl submit``: run a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import option
from kitctl.cli.common import echo, echo_job, echo_manifests, info, seconds, timeout_option
from kitctl.cli.options import JobCommand, job_options, output_option
from kitctl.cli.submission import objects, prepare, rendered, warn
from kitctl.cli.target_options import connect, target_options

if TYPE_CHECKING:
    from kitctl.cli.options import JobRequest
    from kitctl.targets import Submission, Target, TargetOptions

EPILOG = """\b
Examples:
  kitctl submit --nodes 3                         # the default workload, digits
  kitctl submit --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl submit --nodes 2:4 --follow -m my.module --lr 1e-3
  kitctl submit -f job.yaml --nodes 8 --dry-run=client -o yaml
  kitctl submit -f job.yaml --replace --resume    # again, from its last snapshot
"""
_NEXT_STEPS = """\
  kitctl logs -f {name}{where}      its ranks' logs
  kitctl status -w {name}{where}    its progress"""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so no words; no letters that look alike


@click.command(cls=JobCommand, epilog=EPILOG)
@job_options
@target_options
@output_option("yaml", "json", "name")
@option(
    "--dry-run",
    group="Submit",
    type=click.Choice(["client", "server"]),
    default_text="off",
    help="Print what would be applied, as rendered or as the API server would merge it; change nothing.",
)
@option("--replace", group="Submit", is_flag=True, help="Delete a job of that name first; its snapshots stay.")
@option("--no-checks", group="Submit", is_flag=True, help="Skip the checks whether the cluster can run the job.")
@option("--detach", "mode", group="Wait", flag_value="detach", help="Return immediately (the default).")
@option("--wait", "mode", group="Wait", flag_value="wait", help="Wait until the job ends; its result is the exit code.")
@option("--follow", "mode", group="Wait", flag_value="follow", help="Like --wait, and print the ranks' logs.")
@timeout_option
def command(
    job: JobRequest,
    options: TargetOptions,
    output: str | None,
    dry_run: str | None,
    replace: bool,
    no_checks: bool,
    mode: str | None,
    timeout: str | None,
) -> None:
    """Run a script or a module on several nodes, as one job."""
    if dry_run == "client":
        echo_manifests(rendered(job), output)
        return
    from kitctl.targets import remarks

    target = connect(options, announce=True)
    suffix = "" if dry_run else _suffix()
    submission = prepare(job, target.namespace, suffix, replace=replace, checks=not no_checks)
    warn(remarks(options, submission))
    if dry_run == "server":
        echo_manifests([change.after for change in target.preview(submission)], output)
        return
    target.submit(submission)
    _report(target, submission, output, mode, seconds(timeout))


def _suffix() -> str:
    """A random suffix: two jobs of one script get different names."""
    from random import choices

    return "".join(choices(_SUFFIX_LETTERS, k=4))  # noqa: S311 - a name, not a secret


def _report(
    target: Target, submission: Submission, output: str | None, mode: str | None, timeout: float | None
) -> None:
    from kitctl import watching
    from kitctl.cli.logs import follow_until_end
    from kitctl.cli.wait import wait_until_end

    namespace, name = submission.spec.namespace, submission.spec.name
    if mode == "follow":
        info(f"job {name!r} submitted; following its logs (Ctrl-C leaves it running)")
        follow_until_end(target, namespace, name)
    elif mode == "wait":
        info(f"job {name!r} submitted; waiting until it ends (Ctrl-C leaves it running)")
        wait_until_end(target, namespace, name, timeout)
    elif output == "yaml":
        echo_manifests(objects(submission), output)
    elif output == "json":
        echo_job(watching.current(target, namespace, name), output)
    elif output == "name":
        echo(name)
    else:
        echo(f"job {name!r} submitted")
        info(_NEXT_STEPS.format(name=name, where="" if namespace == target.namespace else f" -n {namespace}"))
