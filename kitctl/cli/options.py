"""Options that commands share; ``job_options`` are all that describe a job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kitctl.cli import settings
from kitctl.cli.command import LongCommand, documented_spelling, option
from kitctl.cli.flags import FLAGS, Flag, to_mapping
from kitctl.input.job_request import JobRequest

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from click.shell_completion import CompletionItem

__all__ = ["JobCommand", "JobRequest", "job_options", "templates_option"]

_SEPARATED: Final = "kitctl.separated"  # in a context: whether -- stands before the script

F = TypeVar("F", bound=Callable[..., Any])


class JobCommand(LongCommand):
    """A command that describes a job: everything after the script, or after ``-m MODULE``, belongs to the script."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """End kitctl's own options at ``-m``, as python does."""
        end = self.end_of_options(args)
        ctx.meta[_SEPARATED] = args[end : end + 1] == ["--"]
        return super().parse_args(ctx, [*args[:end], "--", *args[end:]] if args[end : end + 1] == ["-m"] else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Options, but none of kitctl's after the script."""
        return [] if ctx.params.get("words") else super().shell_complete(ctx, incomplete)

    def complete_words(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - an override's
        """The script, whose files the shell completes itself."""
        return [*_completions().FILES]

    def end_of_options(self, args: list[str]) -> int:
        """The index of the first argument that is not an option of kitctl or its value."""
        with_value = self._spellings(flags=False)
        end = 0
        while end < len(args) and args[end].startswith("-") and args[end] not in {"-m", "--"}:
            end += 2 if documented_spelling(args[end]) in with_value else 1
        return end

    def are_options(self, args: list[str]) -> bool:
        """Whether all arguments are options of kitctl or their values."""
        flags, with_value = self._spellings(flags=True), self._spellings(flags=False)
        end = 0
        while end < len(args):
            spelling = documented_spelling(args[end].partition("=")[0]) if args[end][:2] == "--" else args[end][:2]
            if spelling not in flags | with_value:
                return False
            end += 2 if spelling in with_value and len(spelling) == len(args[end]) else 1
        return True

    def _spellings(self, *, flags: bool) -> set[str]:
        options = [option for option in self.params if isinstance(option, click.Option) and option.is_flag == flags]
        return {spelling for option in options for spelling in (*option.opts, *option.secondary_opts)}


def job_options(function: F) -> F:
    """Every option that describes a job. The command, a ``JobCommand``, gets them as one argument, ``job``."""

    @functools.wraps(function)
    def command(
        *, file: str | None, overrides: tuple[str, ...], workload: str | None, words: tuple[str, ...], **rest: Any
    ) -> Any:
        from pathlib import Path

        from kitctl.cli.program import program

        given = {flag: rest.pop(flag.parameter) for flag in FLAGS}
        flags = to_mapping({flag: value for flag, value in given.items() if value is not None})
        fields = program(words, flags, workload)
        if words:
            _check_arguments(fields, separated=click.get_current_context().meta[_SEPARATED])
        job = JobRequest(Path(file) if file else None, fields, overrides, settings.profile().job)
        return function(job=job, **rest)

    decorated: Any = functools.reduce(lambda inner, decorate: decorate(inner), (*_TRAILING, *_table()), command)
    result: F = decorated
    return result


def _check_arguments(fields: Mapping[str, Any], *, separated: bool) -> None:
    if any(word.startswith("--") for word in fields["args"]):
        from kitctl.cli import misplaced
        from kitctl.cli.program import source

        text = source(fields["command"], fields.get("workdir", ""))
        check = misplaced.doubt if separated else misplaced.check
        check(click.get_current_context(), fields["command"], fields["args"], text)


def templates_option(function: F) -> F:
    """``--templates DIR``."""
    return option(
        "--templates",
        group="Output",
        type=click.Path(exists=True, file_okay=False),
        default_text="kitctl's own",
        callback=lambda _context, _option, given: _path(given),
        help="Folder with templates that replace kitctl's of the same file name.",
    )(function)


def _path(given: str | None) -> Path | None:
    from pathlib import Path

    return Path(given) if given else None


def _completions() -> ModuleType:
    """Imported where a shell completes, and nowhere else."""
    from kitctl.cli import completions

    return completions


# Decorators are applied from the last to the first: help shows them in the table's order.
_TRAILING = (
    click.argument(
        "words",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="[[--] SCRIPT | -m MODULE] [ARGS]...",
        shell_complete=lambda context, _argument, incomplete: context.command.complete_words(context, incomplete),
    ),
    option(
        *("--set", "overrides"),
        group="Job",
        metavar="FIELD=VALUE",
        multiple=True,
        shell_complete=lambda _context, _option, incomplete: _completions().keys(incomplete),
        help="Set any field of the job file, as in snapshots.keep=5.",
    ),
    option(
        "--workload",
        group="Job",
        metavar="NAME",
        shell_complete=lambda _context, _option, incomplete: _completions().workloads(incomplete),
        help="Run one of kitctl's workloads, such as mnist; its arguments follow --.",
    ),
    option(
        *("-f", "--file"),
        group="Job",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="Job file (- for stdin); flags override it.",
    ),
)


def _table() -> list[Callable[[Any], Any]]:
    return [_option(flag) for flag in reversed(FLAGS)]


def _option(flag: Flag) -> Callable[[Any], Any]:
    def parse(_context: click.Context, _option: click.Parameter, given: Any) -> Any:
        return flag.parse(given) if given not in {None, ()} else None

    form: dict[str, Any] = {"metavar": flag.metavar, "multiple": flag.repeatable} if flag.metavar else {"is_flag": True}
    return option(
        *(*flag.spellings.split(), flag.parameter),
        group=flag.group,
        default=None,
        default_text=flag.default,
        callback=parse,
        shell_complete=lambda _context, _option, incomplete: _completions().of_flag(flag, incomplete),
        help=flag.help,
        envvar=settings.variable(flag.parameter),
        **form,
    )
