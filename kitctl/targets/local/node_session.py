"""Runs a command where a rank of a local job is, with the user's input and output."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from kitctl.base import names
from kitctl.state.running_job import RankPlace
from kitctl.targets import Session
from kitctl.targets.local import launch, node_tools
from kitctl.targets.local.folder import JobFolder

PIECE_BYTES: Final = 1 << 16
SIGNALLED: Final = 128  # and the signal's number: the exit code of a command that a signal ended, as in a shell


def run(folder: JobFolder, state: Path, place: RankPlace, command: Sequence[str], session: Session) -> int:
    """The command's exit code; Ctrl-C interrupts it.

    Raises:
        ConflictError: the rank's node is not running.
    """
    agent = node_tools.agent(folder, place.node)
    words = [names.ENTER_RANK, "--agent", str(agent), "--rank", str(place.rank), "--", *command]
    session.announce(f"rank {place.rank}: node {place.node} on this machine, as {getpass.getuser()}")
    process = subprocess.Popen(
        node_tools.command(folder, words),
        env=_environment(folder, state, place.node),
        stdin=subprocess.DEVNULL if session.stdin is None else session.stdin,
        stdout=None if session.tty else subprocess.PIPE,
        stderr=None if session.tty else subprocess.PIPE,
        # Ctrl-C is forwarded once, wherever it came from; a terminal interrupts the processes of its own group.
        process_group=None if session.tty else 0,
    )
    readers = [_read(stream, number, session.write) for number, stream in ((1, process.stdout), (2, process.stderr))]
    code = _wait(process, forward=not session.tty)
    for reader in filter(None, readers):
        reader.join()
    return SIGNALLED - code if code < 0 else code


def _environment(folder: JobFolder, state: Path, index: int) -> dict[str, str]:
    """The environment of a node."""
    node, runtime = folder.node(index), folder.runtime
    this = launch.Launch(
        folder=folder,
        job=folder.job,
        index=index,
        attempt=node.attempts,
        port=runtime.port if runtime else 0,
        state=state,
    )
    return launch.environment(this, os.environ)


def _wait(process: subprocess.Popen[bytes], *, forward: bool) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            if forward:
                process.send_signal(signal.SIGINT)


def _read(stream: IO[bytes] | None, number: int, write: Callable[[int, bytes], object]) -> threading.Thread | None:
    if stream is None:
        return None

    def copy() -> None:
        while data := os.read(stream.fileno(), PIECE_BYTES):
            write(number, data)

    thread = threading.Thread(target=copy)
    thread.start()
    return thread
