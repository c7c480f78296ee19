"""Options that verbs share; ``job_options`` are all the ways to describe a job."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kitctl.cli.flags import FLAGS, Flag, tree
from kitctl.jobinput import JobInput

__all__ = ["JobCommand", "JobInput", "job_options", "output_option"]

F = TypeVar("F", bound=Callable[..., Any])


class JobCommand(click.Command):
    """A verb that describes a job: what follows the script, or ``-m MODULE``, is the script's."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """End kitctl's own options at ``-m``, as python ends its."""
        end = self._end_of_options(args)
        return super().parse_args(ctx, [*args[:end], "--", *args[end:]] if args[end : end + 1] == ["-m"] else args)

    def _end_of_options(self, args: list[str]) -> int:
        options = [option for option in self.params if isinstance(option, click.Option) and not option.is_flag]
        with_value = {spelling for option in options for spelling in option.opts}
        end = 0
        while end < len(args) and args[end].startswith("-") and args[end] not in {"-m", "--"}:
            end += 2 if args[end] in with_value else 1
        return end

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each option under its section's heading; those that describe no job come last."""
        rows: dict[str, list[tuple[str, str]]] = {flag.section: [] for flag in FLAGS}
        sections = {flag.parameter: flag.section for flag in FLAGS}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
                rows.setdefault(sections.get(option.name or "", "Other"), []).append(record)
        for section, records in rows.items():
            with formatter.section(section):
                formatter.write_dl(records)


def job_options(function: F) -> F:
    """Every option that describes a job. The verb, a ``JobCommand``, gets them as one argument, ``job``."""

    @functools.wraps(function)
    def verb(*, file: str | None, settings: tuple[str, ...], words: tuple[str, ...], **rest: Any) -> Any:
        from pathlib import Path

        typed = {flag: rest.pop(flag.parameter) for flag in FLAGS}
        flags = tree({flag: value for flag, value in typed.items() if value is not None})
        job = JobInput(file=Path(file) if file else None, flags=flags | _program(words), settings=settings)
        return function(job=job, **rest)

    decorated: Any = functools.reduce(lambda inner, decorate: decorate(inner), (*_TRAILING, *_table()), verb)
    result: F = decorated
    return result


def output_option(*formats: str) -> Callable[[F], F]:
    """``-o FORMAT``."""
    return click.option("-o", "--output", type=click.Choice(formats), help="How the result is printed.")


# Decorators are applied from the last to the first: help shows them in the table's order.
_TRAILING = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[[--] SCRIPT | -m MODULE] [ARGS]..."),
    click.option("--set", "settings", metavar="FIELD=VALUE", multiple=True, help="Any field, as in snapshots.keep=5."),
    click.option(
        "-f",
        "--file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="A job file (- is standard input); flags win over it.",
    ),
)


def _table() -> list[Callable[[Any], Any]]:
    return [_option(flag) for flag in reversed(FLAGS)]


def _option(flag: Flag) -> Callable[[Any], Any]:
    def read(_context: click.Context, _option: click.Parameter, typed: Any) -> Any:
        return flag.read(typed) if typed not in {None, ()} else None

    shape: dict[str, Any] = (
        {"metavar": flag.metavar, "multiple": flag.repeatable} if flag.metavar else {"is_flag": True}
    )
    envvar = "KITCTL_NAMESPACE" if flag.fields == "namespace" else None
    names = (*flag.spellings.split(), flag.parameter)
    return click.option(*names, default=None, callback=read, help=flag.help, envvar=envvar, **shape)


def _program(words: tuple[str, ...]) -> dict[str, list[str]]:
    """``SCRIPT ARGS`` or ``-m MODULE ARGS`` as ``command`` and ``args``; without words the job file's stay."""
    if words == ("-m",):
        raise click.UsageError("-m needs a module, as in -m package.module")
    length = 2 if words[:1] == ("-m",) else 1
    return {"command": list(words[:length]), "args": list(words[length:])} if words else {}
