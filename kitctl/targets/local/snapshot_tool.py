"""Runs ``kittrain.rank.snapshots`` as a process of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kitctl.base import names
from kitctl.targets.conflicts import trainer_failed
from kitctl.targets.local.interpreter import command, with_library

CHUNK_BYTES: Final = 1 << 20


def run(python: str, library: str, folder: Path, args: Sequence[str]) -> Iterator[bytes]:
    """The stdout of ``kittrain.rank.snapshots``, as it arrives; ``library`` is added to the interpreter's path.

    Raises:
        TargetError: it failed; with the last line of its stderr.
    """
    return output(command(python, [*names.SNAPSHOTS, str(folder), *args]), library)


def run_on_mirror(url: str, args: Sequence[str]) -> Iterator[bytes]:
    """The same for a mirror, by kitctl's own interpreter, which may or may not have what it takes."""
    return output(command(sys.executable, [names.SNAPSHOTS[0], "--mirror", url, *args]), "")


def output(words: Sequence[str], library: str) -> Iterator[bytes]:
    """The stdout of a tool of the trainer, as it arrives.

    Raises:
        TargetError: it failed; with the last line of its stderr.
    """
    with (
        tempfile.TemporaryFile() as errors,  # a pipe would fill up, since it is read at the end only
        subprocess.Popen(
            words,
            env=with_library(os.environ, library),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdout is not None
        while piece := process.stdout.read(CHUNK_BYTES):
            yield piece
        if process.wait():
            errors.seek(0)
            raise trainer_failed(errors.read())
