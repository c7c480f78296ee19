"""What several verbs share: the target, a job's argument with completion, and how a job is printed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kitctl.state import JobState
    from kitctl.targets import Target, TargetName

F = TypeVar("F", bound=Callable[..., Any])


def connect(asked: TargetName | None, *, announce: bool = False) -> Target:
    """The target that is meant; says so if nobody chose it and ``announce`` is set."""
    from kitctl import targets

    choice = targets.choose(asked)
    if announce and choice.reason:
        say(choice.reason)
    return targets.connect(choice.name)


def say(text: str) -> None:
    """A remark for the person, which is never part of the output: it goes to stderr."""
    click.echo(text, err=True)


def job_argument(function: F) -> F:
    """``NAME``, completed from the jobs that there are."""
    return click.argument("name", shell_complete=_complete_jobs)(function)


def timeout_option(function: F) -> F:
    """``--timeout 10m``."""
    return click.option("--timeout", metavar="TIME", help="Give up after this long (exit 124); the job goes on.")(
        function
    )


def seconds(text: str | None) -> float | None:
    """A duration from a flag as seconds."""
    from kitctl.quantity import seconds as parse

    try:
        return None if text is None else float(parse(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def show(job: JobState, output: str | None) -> None:
    """Print a job the way ``-o`` says."""
    click.echo("\n".join(_render(job, output)))


def encode(value: object) -> str:
    """JSON as ``-o json`` prints it."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _render(job: JobState, output: str | None) -> list[str]:
    from kitctl.view import text

    if output == "json":
        return [encode(job)]
    return [job.name] if output == "name" else text.job_page(job, time.time())


def _complete_jobs(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    namespace = os.environ.get("KITCTL_NAMESPACE", "default")
    jobs = connect(None).jobs(namespace)
    return [job.name for job in jobs if job.name.startswith(incomplete)]
