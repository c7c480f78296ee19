"""``kitctl exec``: run a command where a rank is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import echo_log, info
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from kitctl.api.job import Job

EPILOG = """\b
The exit code is that of the command.

\b
Examples:
  kitctl exec digits -- nvidia-smi                 # where rank 0 is
  kitctl exec digits --rank 3 -it -- bash
  kitctl exec digits --rank 3 -- sh -c 'ls -l; df -h .'
  kitctl exec digits -i -- tee notes.txt < notes.txt
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("--rank", group="Job", type=click.IntRange(min=0), metavar="N", default=0, help="The rank.")
@option("-i", "--stdin", group="Job", is_flag=True, help="Pass standard input to the command.")
@option("-t", "--tty", group="Job", is_flag=True, help="Give the command this terminal.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="[--] COMMAND [ARGS]...")
def command(job: Job, rank: int, stdin: bool, tty: bool, words: tuple[str, ...]) -> int:
    """Run a command in a rank's working folder, with its variables."""
    from kitctl.base.errors import UsageError
    from kitctl.targets import Session

    if tty and not (stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("-t needs a terminal, and -i", fix="use -it in a terminal, or leave out -t")
    with _raw_terminal() if tty else _escaped() as write:
        session = Session(write=write, stdin=sys.stdin.fileno() if stdin else None, tty=tty, announce=info)
        return job.run_in_rank(rank, words, session)


@contextmanager
def _raw_terminal() -> Iterator[Callable[[int, bytes], object]]:
    """The command has the terminal: what it prints is obeyed, which ``-t`` asks for."""
    import termios
    import tty

    before = termios.tcgetattr(0)

    def write(_stream: int, data: bytes) -> None:
        if termios.tcgetattr(0) == before:  # not sooner: messages of kitctl need line breaks as they are
            tty.setraw(0)
        while data:
            data = data[os.write(1, data) :]

    try:
        yield write
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _escaped() -> Iterator[Callable[[int, bytes], object]]:
    """What the command prints; in a terminal without codes that could control it."""
    streams = {1: sys.stdout, 2: sys.stderr}
    rest = {1: b"", 2: b""}

    def write(number: int, data: bytes) -> None:
        stream = streams[number]
        if not stream.isatty():
            binary = getattr(stream, "buffer", None)  # none in a program that has replaced the stream
            binary.write(data) if binary else stream.write(data.decode(errors="replace"))
            stream.flush()
            return
        *lines, rest[number] = (rest[number] + data).split(b"\n")
        for line in lines:
            echo_log(line.decode(errors="replace"), err=number != 1)

    yield write
    for number, last in rest.items():
        if last:
            echo_log(last.decode(errors="replace"), err=number != 1)
