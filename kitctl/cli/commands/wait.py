"""``kitctl wait``: wait until a job ends; the exit code is its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, timeout_option
from kitctl.cli.common import info, seconds
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job
    from kitctl.state.phase import JobState

EPILOG = """\b
Exit codes: 0 succeeded, 100 failed, 102 no such job, 103 cancelled, 124 timeout.

\b
Examples:
  kitctl wait digits --timeout 30m
  kitctl wait digits && kitctl logs digits --rank 0 --tail 1
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@timeout_option
def command(job: Job, timeout: str | None) -> None:
    """Wait until a job ends."""
    wait_until_end(job, seconds(timeout))


def wait_until_end(job: Job, timeout: float | None) -> None:
    """Print each change of the phase, of its reason, and of what ranks do that take no step.

    Raises:
        KitError: the one that the final phase stands for.
    """
    import time

    from kitctl.api.job import error_for_phase
    from kitctl.base.printable import line

    printed, seen, still = ("", ""), None, None  # the error has the reason of the final phase
    try:
        for seen in job.states(timeout=timeout):
            if printed != (printed := (seen.phase, "" if seen.finished else seen.reason)):
                info(f"{job.name}: {seen.phase}" + (f" ({line(printed[1])})" if printed[1] else ""))
            if still != (still := seen.standstill) and still is not None:
                info(f"{job.name}: {line(seen.still(time.time()))}")
    except KeyboardInterrupt:
        detach(job.name)
    if seen:
        name_outputs(seen)
    if seen and (error := error_for_phase(seen)):
        raise error


def name_outputs(job: JobState) -> None:
    """Print where an ended job's outputs are, if in folders of its own."""
    if job.finished and job.outputs:
        info(f"{job.name}: outputs in {job.outputs}")


def detach(name: str) -> None:
    """Ctrl-C while watching: the job continues; print how to watch it again.

    Raises:
        SystemExit: 130, the exit code after SIGINT.
    """
    info(
        f"\nleft {name!r} running\n"
        f"  kitctl logs -f {name}      follow its logs\n"
        f"  kitctl status {name}       show its state\n"
        f"  kitctl cancel {name}       end it"
    )
    raise SystemExit(130)
