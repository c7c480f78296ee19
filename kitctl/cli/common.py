"""What several verbs share: how things are printed, and asked. All that a verb prints goes through here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitctl import printable

if TYPE_CHECKING:
    from kitctl.state import JobState

F = TypeVar("F", bound=Callable[..., Any])


def out(text: str, *, nl: bool = True) -> None:
    """A verb's output."""
    click.echo(printable.text(text), nl=nl)


def out_log(line: str) -> None:
    """A line of a rank's log: as it is, but for what it could do to a terminal."""
    click.echo(printable.log(line) if sys.stdout.isatty() else line)


def say(text: str) -> None:
    """A remark for the person, which is never part of the output: it goes to stderr."""
    click.echo(printable.text(text), err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone, unless ``yes`` says that it is wanted.

    Raises:
        UsageError: nobody is there to answer.
        click.Abort: it is not wanted.
    """
    from kitctl.errors import UsageError

    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(f"{question} Nobody is there to answer", fix="give -y (--yes) to go on without being asked")
    click.confirm(printable.text(question), abort=True, err=True)


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
    out("\n".join(_render(job, output)))


def manifests(objects: Iterable[Mapping[str, Any]], output: str | None) -> None:
    """Print Kubernetes objects the way ``-o`` says: YAML if it says nothing."""
    from kitctl import render

    printers = {"yaml": render.to_yaml, "json": render.to_json, "name": render.to_names}
    out(printers[output or "yaml"](objects), nl=False)


def encode(value: object) -> str:
    """JSON as ``-o json`` prints it."""
    import msgspec

    return printable.json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _render(job: JobState, output: str | None) -> list[str]:
    from kitctl.view import text

    if output == "json":
        return [encode(job)]
    return [job.name] if output == "name" else text.job_page(job, time.time(), wide=output == "wide")
