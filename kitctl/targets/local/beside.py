"""A process beside a job's snapshots, for what only the trainer can read."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kitctl import names
from kitctl.targets.conflicts import trainer_failed

CHUNK_BYTES: Final = 1 << 20


def run(python: str, folder: Path, words: Sequence[str]) -> Iterator[bytes]:
    """What ``kittrain.snapshots`` prints, as it comes.

    Raises:
        TargetError: it ended with an error, whose last line is told.
    """
    command = [python, *names.SNAPSHOTS_COMMAND[1:], str(folder), *words]
    with (
        tempfile.TemporaryFile() as errors,  # a pipe that nobody reads meanwhile would fill up
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        while piece := process.stdout.read(CHUNK_BYTES):
            yield piece
        if process.wait():
            errors.seek(0)
            raise trainer_failed(errors.read())
