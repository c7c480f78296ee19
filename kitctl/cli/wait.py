"""``kitctl wait``: return when a job has ended, with an exit code that says how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import say, seconds, timeout_option
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob
    from kitctl.targets import Target

EPILOG = """\b
Exit codes: 0 succeeded, 100 failed, 102 no such job, 103 cancelled, 124 --timeout is over.

\b
Examples:
  kitctl wait digits --timeout 30m
  kitctl wait digits && kitctl logs digits --rank 0 --tail 1
"""


@click.command(epilog=EPILOG)
@named_job
@timeout_option
def command(job: NamedJob, timeout: str | None) -> None:
    """Wait until a job has ended."""
    wait_to_the_end(job.target, job.namespace, job.name, seconds(timeout))


def wait_to_the_end(target: Target, namespace: str, name: str, timeout: float | None) -> None:
    """Say each change of phase or of its reason, and raise what the end means."""
    from kitctl import watching
    from kitctl.printable import line

    told, job = ("", ""), None  # the reason of an end is told by what is raised
    try:
        for job in watching.states(target, namespace, name, timeout=timeout):
            if told != (told := (job.phase, "" if job.finished else job.reason)):
                say(f"{name}: {job.phase}" + (f" ({line(told[1])})" if told[1] else ""))
    except KeyboardInterrupt:
        leave(name)
    if job and (error := watching.verdict(job)):
        raise error


def leave(name: str) -> None:
    """Ctrl-C while watching: the job lives on, and the person is told how to come back.

    Raises:
        SystemExit: 130, as a shell expects of what SIGINT ended.
    """
    say(
        f"\nleft {name!r} running\n"
        f"  kitctl logs -f {name}      come back to its logs\n"
        f"  kitctl status {name}       see how it is\n"
        f"  kitctl cancel {name}       end it"
    )
    raise SystemExit(130)
