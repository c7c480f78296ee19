"""``kitctl wait``: wait until a job ends; the exit code is its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, timeout_option
from kitctl.cli.common import info, seconds
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitctl.api.job import Job
    from kitctl.state.phase import JobState
    from kitctl.state.why.explain import Explanation
    from kitjob.report import Standstill

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
    """Print each change of the phase, of its cause, and of what ranks do that take no step.

    Raises:
        KitError: the one that the final phase stands for.
    """
    from kitctl.api.job import error_for_phase

    seen, changes = None, Changes()
    try:
        for seen in job.states(timeout=timeout):
            for line in changes.lines(seen, job.why(seen)):
                info(line)
    except KeyboardInterrupt:
        detach(job.name)
    if seen:
        name_outputs(seen)
    if seen and (error := error_for_phase(seen)):
        raise error


class Changes:
    """What is new in each state of a job: its phase, its cause, what it waits for, a note, where its ranks stand."""

    def __init__(self) -> None:
        self._phase = ""
        self._told: set[str] = set()  # causes, as topics
        self._still: Standstill | None = None

    def lines(self, job: JobState, found: Explanation) -> Iterator[str]:
        """What to print of a state; each cause is told once, with its fix unless the end of the job may tell that."""
        from kitctl.base.printable import line
        from kitctl.state.why.repeats import topic

        why = found.cause or ("" if job.standstill else found.fact)
        about = "" if _ends(job) else topic(why, job.name)
        is_new = about and about not in self._told
        noted = "" if why else topic(found.note, job.name)
        if job.phase != self._phase or is_new:
            told = line(why if is_new or (about and job.finished) else found.note)
            yield f"{job.name}: {job.phase}" + (f" ({told})" if told else "")
        elif noted and noted not in self._told:
            yield f"{job.name}: {line(found.note)}"
        if is_new and not job.last_failure:
            named = (("fix", found.fix), ("then", found.then))
            yield from (f"  {name}: {line(text)}" for name, text in named if text)
        if job.standstill and job.standstill != self._still:
            yield f"{job.name}: {line(found.fact)}"
        self._phase, self._still = job.phase, job.standstill
        self._told |= {about, noted}


def _ends(job: JobState) -> bool:
    """Whether it has failed for good, or is about to: the error at its end has the cause."""
    said = (job.reason, *(node.reason for node in job.nodes))
    return job.phase == "Failed" or (job.phase != "Running" and any("no restart" in one for one in said))


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
