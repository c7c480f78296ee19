"""What several verbs share: printing and confirmation. Everything that a verb prints goes through here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitctl.base import printable
from kitctl.cli.command import option

if TYPE_CHECKING:
    from kitctl.state.phase import JobState

F = TypeVar("F", bound=Callable[..., Any])


def echo(text: str, *, nl: bool = True) -> None:
    """Print a verb's output, to stdout."""
    click.echo(printable.text(text), nl=nl)


def echo_log(line: str) -> None:
    """Print a line of a rank's log; in a terminal without codes that could control it."""
    click.echo(printable.log(line) if sys.stdout.isatty() else line)


def info(text: str) -> None:
    """Print a message that is not part of the output, to stderr."""
    click.echo(printable.text(text), err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation of an irreversible action; ``yes`` skips the prompt.

    Raises:
        UsageError: stdin is not a terminal.
        click.Abort: the answer is no.
    """
    from kitctl.base.errors import UsageError

    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(f"{question} confirmation needed, but stdin is not a terminal", fix="give -y (--yes)")
    click.confirm(printable.text(question), abort=True, err=True)


def timeout_option(function: F) -> F:
    """``--timeout 10m``."""
    return option(
        "--timeout", group="Wait", metavar="TIME", default_text="none", help="Stop waiting after this long (exit 124)."
    )(function)


def yes_option(function: F) -> F:
    """``-y``."""
    return option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def seconds(text: str | None) -> float | None:
    """A duration from an option as seconds."""
    from kitjob.durations import seconds as parse

    try:
        return None if text is None else float(parse(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def echo_job(job: JobState, output: str | None, *, stream: bool = False) -> None:
    """Print a job in the format of ``-o``; JSON of a ``stream`` is one line."""
    from kitctl.output.view import text

    if output == "json":
        from kitctl import output as documents

        echo_json(documents.job(job), stream=stream)
    else:
        page = [job.name] if output == "name" else text.job_page(job, time.time(), wide=output == "wide")
        echo("\n".join(page))


def echo_manifests(objects: Iterable[Mapping[str, Any]], output: str | None) -> None:
    """Print Kubernetes objects in the format of ``-o``, by default YAML."""
    from kitctl.render import objects as render

    printers = {"yaml": render.to_yaml, "json": render.to_json, "name": render.to_names}
    echo(printers[output or "yaml"](objects), nl=False)


def echo_json(document: object, *, stream: bool = False) -> None:
    """Print an object of ``kitctl.output``; in a ``stream`` as one line."""
    echo(encode(document, indent=-1 if stream else 2))


def encode(value: object, *, indent: int = 2) -> str:
    """JSON as ``-o json`` prints it; ``indent`` -1: on one line."""
    import msgspec

    text = msgspec.json.encode(value)
    return printable.json((msgspec.json.format(text, indent=indent) if indent >= 0 else text).decode())
