"""``kitctl logs``: the logs of a job's ranks, merged or filtered."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from kitctl.cli.command import Command, option, output_option
from kitctl.cli.common import echo_json, echo_log, echo_logs, info, seconds, shows_colours
from kitctl.cli.target_options import member_option, named_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kitctl.api.job import Job
    from kitctl.state.logs import Filter, Line

EPILOG = """\b
Examples:
  kitctl logs digits                       # all ranks, merged by time
  kitctl logs -f digits --rank 0           # follow rank 0
  kitctl logs digits --failed              # the ranks that have failed
  kitctl logs digits --previous            # what came before the last restart
  kitctl logs digits --node 2 --tail 50    # the last lines of node 2
  kitctl logs digits --since 10m --include 'loss|accuracy'
  kitctl logs digits -o json | jq -r 'select(.rank == 0) | .text'
"""

BATCH: Final = 256  # lines of one write
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # of ranks, by turns; not red, which errors have
M_ARENA_MAX: Final = -8  # of glibc's malloc.h
_INDEX = click.IntRange(min=0)


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("-f", "--follow", group="Output", is_flag=True, help="Stream until the job ends.")
@member_option("--rank", "ranks", group="Filter", multiple=True, help="Only this rank (repeatable).")
@member_option("--node", "nodes", group="Filter", multiple=True, help="Only this node (repeatable).")
@option("--failed", group="Filter", is_flag=True, help="Only ranks that have failed, also before a restart.")
@option("--previous", group="Filter", is_flag=True, help="Only lines from before the last restart.")
@option("--tail", group="Filter", type=_INDEX, metavar="N", default_text="all", help="Only the last N lines.")
@option("--since", group="Filter", metavar="TIME", help="Only lines of the last TIME, as in 90s or 10m.")
@option("--since-time", group="Filter", metavar="RFC3339", help="Only lines since this time.")
@option("--timestamps", group="Output", is_flag=True, help="Begin each line with its time (UTC).")
@option("--full", group="Output", is_flag=True, help="In a terminal: fold no lines or frames.")
@output_option("json")
@option("--include", group="Filter", metavar="REGEX", help="Only lines matching REGEX.")
@option("--exclude", group="Filter", metavar="REGEX", help="No lines matching REGEX.")
def command(
    job: Job,
    follow: bool,
    ranks: tuple[int, ...],
    nodes: tuple[int, ...],
    failed: bool,
    previous: bool,
    tail: int | None,
    since: str | None,
    since_time: str | None,
    timestamps: bool,
    full: bool,
    output: str | None,
    include: str | None,
    exclude: str | None,
) -> None:
    """Print the ranks' logs, merged by time."""
    from kitctl.state.logs import Filter

    selected = Filter(
        ranks=frozenset((*ranks, *_failed(job))) if failed else frozenset(ranks),
        nodes=frozenset(nodes),
        since=since_time or _ago(since),
        before=_last_start(job) if previous else "",
        include=_pattern(include),
        exclude=_pattern(exclude),
    )
    if previous and follow:
        raise click.UsageError("--previous has an end: leave out --follow")
    echo_line = _echo_json if output == "json" else _echo_with_time if timestamps else _echo_text
    fold = folds(full=full or output == "json")
    if follow:
        _share_one_heap()
        follow_until_end(job, selected, tail=tail, echo_line=echo_line, check=False, fold=fold)
    elif not _print(fold(job.lines(selected, tail=tail)), echo_line) and tail != 0:
        _say_why_nothing(job, filtered=selected != Filter())


def _share_one_heap() -> None:
    """Have all threads allocate from one heap: glibc's eight a core keep what each of them once had, 10 MB in all.

    They would not contend for it, as only one of them runs Python at a time.
    """
    import ctypes

    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _say_why_nothing(job: Job, *, filtered: bool) -> None:
    """No line was printed: say what the job does instead of logging."""
    from kitctl.base.printable import line

    state = job.state()
    why = f": {line(state.reason)}" if state.reason else ""
    info(f"{job.name}: {'no line is of these' if filtered else 'nothing logged'} ({state.phase.lower()}{why})")


def _failed(job: Job) -> set[int]:
    """The ranks whose failures ended a round, or the job.

    Raises:
        NotFound: none has failed.
    """
    from kitctl.base.errors import NotFound

    state = job.state()
    found = {one.rank for one in state.failures} | ({state.failure.rank} if state.failure else set())
    if not (ranks := {rank for rank in found if rank is not None}):
        raise NotFound(f"no rank of job {job.name!r} has failed", fix="leave out --failed")
    return ranks


def _last_start(job: Job) -> str:
    """When the ranks were last started again, as lines have the time.

    Raises:
        NotFound: they never were.
    """
    from kitctl.base.errors import NotFound

    state = job.state()
    if not (state.restarts and state.formed):
        raise NotFound(f"the ranks of job {job.name!r} were not started again", fix="leave out --previous")
    return _rfc3339(datetime.fromtimestamp(state.formed, UTC))


def folds(*, full: bool = False) -> Callable[[Iterable[Line]], Iterable[Line]]:
    """What folds lines for people; programs that read from a pipe get all."""
    from kitctl.state.log_folding import folded

    return folded if sys.stdout.isatty() and not full else iter


def _echo_text(line: Line) -> None:
    echo_log(_coloured(line))


def _echo_with_time(line: Line) -> None:
    echo_log(f"{line.time} {_coloured(line)}")


def _coloured(line: Line) -> str:
    """A line; in a terminal its prefix has the colour of its rank."""
    if (rank := line.rank) is None or not shows_colours():
        return line.text
    return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{line.prefix}\x1b[0m{line.message}"


def _echo_json(line: Line) -> None:
    from kitctl.output import documents

    echo_json(documents.log_line(line), stream=True)


def follow_until_end(
    job: Job,
    selected: Filter | None = None,
    *,
    tail: int | None = None,
    echo_line: Callable[[Line], None] = _echo_text,
    check: bool = True,
    fold: Callable[[Iterable[Line]], Iterable[Line]] | None = None,
) -> None:
    """Print lines until the job ends; then why it failed, or with ``check`` raise the error of its final phase."""
    from kitctl.api.job import error_for_phase
    from kitctl.cli.commands.wait import detach, name_outputs
    from kitctl.state.logs import Filter

    selected, fold = selected or Filter(), fold or folds()
    try:
        if tail is not None:
            last = list(job.lines(selected, tail=tail))
            _print(fold(last), echo_line)
            selected = replace(selected, since=_after(last) or selected.since)
        batches = job.follow_batches(selected)
        if _in_a_pipe(echo_line):
            for batch in filter(None, batches):
                echo_logs(line.text for line in batch)
        else:
            _print(fold(chain.from_iterable(batches)), echo_line)
    except KeyboardInterrupt:
        detach(job.name)
    ended = job.state()
    name_outputs(ended)
    error = error_for_phase(ended)
    if check and error:
        raise error
    if error and ended.phase == "Failed":  # the exit code is that of reading the logs
        info(str(error))


def _print(lines: Iterable[Line], echo_line: Callable[[Line], None]) -> int:
    """Print lines as they come; returns their number."""
    if _in_a_pipe(echo_line):
        return _print_together(lines)
    printed = 0
    for line in lines:
        echo_line(line)
        printed += 1
    return printed


def _print_together(lines: Iterable[Line]) -> int:
    """The same, many in one write; those before an error, too."""
    printed, batch = 0, list[str]()
    try:
        for line in lines:
            batch.append(line.text)
            if len(batch) == BATCH:
                echo_logs(batch)
                printed += len(batch)
                batch.clear()
    finally:
        if batch:
            echo_logs(batch)
    return printed + len(batch)


def _in_a_pipe(echo_line: Callable[[Line], None]) -> bool:
    """Whether a program or a file gets the lines as they are: many in one write then, as each takes a while."""
    return echo_line is _echo_text and not sys.stdout.isatty() and not shows_colours()


def _after(lines: list[Line]) -> str:
    """A time just after the last line: times have a fixed width, so a longer text is later."""
    return f"{lines[-1].time}+" if lines else _rfc3339(datetime.now(UTC))


def _ago(text: str | None) -> str:
    span = seconds(text)
    if span is None:
        return ""
    return _rfc3339(datetime.now(UTC) - timedelta(seconds=span))


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from error
