"""``kitctl logs``: what the ranks of a job say, all together or one by one."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from kitctl.cli.common import out_log, say, seconds
from kitctl.cli.place import named_job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kitctl.cli.place import NamedJob
    from kitctl.logs import Filter, Line
    from kitctl.targets import Target

EPILOG = """\b
Examples:
  kitctl logs digits                       # all ranks, in the order of time
  kitctl logs -f digits --rank 0           # rank 0 as it speaks, wherever it runs
  kitctl logs digits --node 2 --tail 50    # what node 2's agent and ranks said last
  kitctl logs digits --since 10m --include 'loss|accuracy'
"""


@click.command(epilog=EPILOG)
@named_job
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job has ended.")
@click.option("--rank", "ranks", type=click.IntRange(min=0), multiple=True, help="Only this rank (may be repeated).")
@click.option("--node", "nodes", type=click.IntRange(min=0), multiple=True, help="Only this node (may be repeated).")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--since", metavar="TIME", help="Only lines of the last TIME, as in 90s or 10m.")
@click.option("--since-time", metavar="RFC3339", help="Only lines since this time.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time (UTC).")
@click.option("--include", metavar="REGEX", help="Only lines in which this is found.")
@click.option("--exclude", metavar="REGEX", help="No lines in which this is found.")
def command(
    job: NamedJob,
    follow: bool,
    ranks: tuple[int, ...],
    nodes: tuple[int, ...],
    tail: int | None,
    since: str | None,
    since_time: str | None,
    timestamps: bool,
    include: str | None,
    exclude: str | None,
) -> None:
    """Print what the ranks of a job have said, in the order of time."""
    from kitctl.logs import Filter

    wanted = Filter(
        ranks=frozenset(ranks),
        nodes=frozenset(nodes),
        since=since_time or _ago(since),
        include=_pattern(include),
        exclude=_pattern(exclude),
    )
    where = (job.target, job.namespace, job.name)
    if follow:
        follow_to_the_end(*where, wanted, tail=tail, timestamps=timestamps, judge=False)
    else:
        from kitctl import watching

        _print(watching.lines(*where, wanted, tail), timestamps=timestamps)


def follow_to_the_end(
    target: Target,
    namespace: str,
    name: str,
    wanted: Filter | None = None,
    *,
    tail: int | None = None,
    timestamps: bool = False,
    judge: bool = True,
) -> None:
    """Print lines until the job has ended, and why if it failed; with ``judge`` raise what its end means."""
    from kitctl import watching
    from kitctl.cli.wait import leave
    from kitctl.logs import Filter

    wanted = wanted or Filter()
    try:
        if tail is not None:
            last = list(watching.lines(target, namespace, name, wanted, tail))
            _print(last, timestamps=timestamps)
            wanted = replace(wanted, since=_after(last) or wanted.since)
        _print(watching.follow(target, namespace, name, wanted), timestamps=timestamps)
    except KeyboardInterrupt:
        leave(name)
    job = watching.current(target, namespace, name)
    error = watching.verdict(job)
    if judge and error:
        raise error
    if error and job.phase == "Failed":  # the reader of logs did not ask for an exit code
        say(f"{error.message}\nfix: {error.fix}")


def _print(lines: Iterable[Line], *, timestamps: bool) -> None:
    for line in lines:
        out_log(f"{line.time} {line.text}" if timestamps else line.text)


def _after(lines: list[Line]) -> str:
    """The moment right after the last line: times are text of fixed width, so a longer one is later."""
    return f"{lines[-1].time}+" if lines else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _ago(text: str | None) -> str:
    span = seconds(text)
    if span is None:
        return ""
    return (datetime.now(UTC) - timedelta(seconds=span)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from error
