"""What several commands share: printing and confirmation. Everything that a command prints goes through here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from kitctl.base import printable
from kitctl.cli import hints

if TYPE_CHECKING:
    from pathlib import Path

    from kitctl.output.view.text import Look
    from kitctl.state.phase import JobState
    from kitctl.state.series import Picture

WIDEST_PLOT: Final = 160
AS_YAML: Final = "kitctl.yaml"  # in a context: whether what would be JSON is printed as YAML


def echo(text: str, *, nl: bool = True) -> None:
    """Print a command's output, to stdout."""
    click.echo(printable.text(text), nl=nl)


def clear() -> None:
    """Begin at the top of an empty screen."""
    click.echo("\x1b[H\x1b[J", nl=False)


def echo_log(line: str, *, err: bool = False) -> None:
    """Print a line of a rank's log; in a terminal without codes that could control it."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
    click.echo(printable.log(line) if terminal else line, err=err)


def echo_logs(lines: Iterable[str]) -> None:
    """Print lines of ranks' logs as they are, in one write: into a pipe or a file."""
    click.echo("\n".join(lines))


def echo_plot(picture: Picture) -> None:
    """Draw curves as wide as the terminal, with colours if it has them."""
    import shutil

    from kitctl.output.view import chart

    colour = shows_colours()
    width = shutil.get_terminal_size((100, 24)).columns
    for line in chart.chart(picture, width=min(width, WIDEST_PLOT), colour=colour, unicode=shows_unicode()):
        click.echo(line, color=colour)


def save(path: Path, chunks: Iterable[bytes], *, private: bool = False) -> int:
    """Write a file, whole or not at all, and return its size in bytes; if ``private`` only its user can read it.

    A device, a pipe or a link, such as ``/dev/stdout``, is written to and never replaced; ``-`` is the standard output.

    Raises:
        TargetError: it cannot be written.
    """
    from contextlib import suppress

    from kitctl.base.errors import TargetError

    if is_stdout(path):
        path = type(path)("/dev/stdout")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return _write_through(path, chunks)
    draft = path.with_name(f".{path.name}.part")
    try:
        with open(draft, "wb", opener=_private if private else None) as file:
            size = sum(map(file.write, chunks))
            file.flush()
            os.fsync(file.fileno())  # before the name: a power cut must not leave an empty file that looks written
        draft.replace(path)
    except OSError as error:
        raise TargetError(f"{path} cannot be written: {error.strerror}", fix="choose another file: -o FILE") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return size


def is_stdout(path: Path) -> bool:
    """Whether a file's name means the standard output, where nothing else may be printed then."""
    return str(path) in {"-", "/dev/stdout"}


def _write_through(path: Path, chunks: Iterable[bytes]) -> int:
    from kitctl.base.errors import TargetError

    try:
        with path.open("wb") as file:
            return sum(map(file.write, chunks))
    except OSError as error:
        raise TargetError(f"{path} cannot be written: {error.strerror}", fix="choose another file: -o FILE") from error


def _private(path: str, flags: int) -> int:
    """Open a new file that nobody else can read; one that is left from before, whose it may be, is replaced."""
    from contextlib import suppress

    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - as given to an opener
    return os.open(path, flags | os.O_EXCL, 0o600)


def info(text: str) -> None:
    """Print a message that is not part of the output, to stderr."""
    click.echo(printable.text(hints.addressed(text)), err=True)


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
        from kitctl.output import documents

        echo_json(documents.job(job, time.time()), stream=stream)
    else:
        page = [job.name] if output == "name" else text.job_page(job, time.time(), look(wide=output == "wide"))
        echo("\n".join(map(hints.addressed, page)))


def look(*, wide: bool = False) -> Look:
    """How a page looks where it is printed: as wide as the terminal, if that is one."""
    from kitctl.output.view.text import Look

    if not sys.stdout.isatty():
        return Look(wide=wide)
    import shutil

    return Look(width=shutil.get_terminal_size().columns, unicode=shows_unicode(), wide=wide)


def shows_colours() -> bool:
    """Whether what is printed may have colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shows_unicode() -> bool:
    """Whether what is printed can have other characters than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def echo_manifests(objects: Iterable[Mapping[str, Any]], output: str | None) -> None:
    """Print Kubernetes objects in the format of ``-o``, by default YAML."""
    from kitctl.render import objects as render

    printers = {"yaml": render.to_yaml, "json": render.to_json, "name": render.to_names}
    echo(printers[output or "yaml"](objects), nl=False)


def echo_json(document: object, *, stream: bool = False) -> None:
    """Print an object of ``kitctl.output.documents``: with ``-o yaml`` as YAML; in a ``stream`` JSON is one line."""
    ctx = click.get_current_context(silent=True)
    if ctx and ctx.meta.get(AS_YAML):
        echo(("---\n" if stream else "") + as_yaml(document), nl=False)
    else:
        echo(encode(document, indent=-1 if stream else 2))


def as_yaml(value: object) -> str:
    """What ``encode`` returns, as YAML."""
    import json

    import yaml

    return yaml.safe_dump(json.loads(encode(value)), sort_keys=False, allow_unicode=True, width=WIDEST_PLOT)


def encode(value: object, *, indent: int = 2) -> str:
    """JSON as ``-o json`` prints it; ``indent`` -1: on one line."""
    import msgspec

    text = msgspec.json.encode(value)
    return printable.json((msgspec.json.format(text, indent=indent) if indent >= 0 else text).decode())
