"""The program of a job, from the arguments after the options: a script, a module or another launcher's line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kitctl.cli.common import info
from kitctl.input.job_request import merge

if TYPE_CHECKING:
    from kitctl.input.lines import LaunchLine


def program(words: Sequence[str], flags: Mapping[str, Any], workload: str | None) -> dict[str, Any]:
    """The fields of a job that arguments and flags set; flags win. Without arguments, the job file's command stays.

    Raises:
        UsageError: the words are no program, or there is no such workload.
    """
    if workload is not None:
        from kitctl.input.workloads import module

        return {**flags, "command": ["-m", module(workload)], "args": [*words]}
    if not words:
        return {**flags}
    if tuple(words) == ("-m",):
        raise click.UsageError("-m needs a module, as in -m package.module")
    from kitctl.input import lines

    line = lines.parse(words, flags)
    fields = merge(line.fields, flags) if line else {**flags}
    command, args = _split(line.program if line else words)
    if line:
        _explain(line, fields)
    return {**fields, "command": command, "args": _arguments(command, args, line)}


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    length = 2 if words[0] == "-m" else 1
    return [*words[:length]], [*words[length:]]


def _explain(line: LaunchLine, fields: Mapping[str, Any]) -> None:
    info(f"read as: {line.equivalent(fields)}")
    if line.left_out:
        info(f"  left out, as kitctl sees to it: {', '.join(line.left_out)}")


def _arguments(command: Sequence[str], args: Sequence[str], line: LaunchLine | None) -> list[str]:
    """The arguments, and in front of them the local rank for a script that takes it."""
    from kitctl.input.local_rank import with_local_rank

    found = with_local_rank(args, source(command), line.local_rank if line else "")
    if len(found) > len(args):
        info(f"each rank gets its {found[0].partition('=')[0]}, as {command[0]} expects")
    return found


def source(command: Sequence[str], folder: str = "") -> str:
    """The text of a script that is sent along, by its path in ``folder``; empty for another, or a module."""
    from pathlib import Path

    try:
        return Path(folder, command[0]).read_text(encoding="utf-8") if command[0].endswith(".py") else ""
    except (OSError, UnicodeDecodeError):
        return ""  # reported by sources
