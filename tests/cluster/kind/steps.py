"""Run one step: log its output, print its duration, and record finished work."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TextIO, TypeAlias, TypeVar

from tests.cluster.kind.settings import ENVIRON, STATE


class StepError(Exception):
    """A step failed; the message has the reason and the fix."""


Steps: TypeAlias = Mapping[str, Callable[[], None]]
Result = TypeVar("Result")
# Of the thread that runs steps: the running one's log, if one runs, and where names and durations are printed.
_log: ContextVar[TextIO | None] = ContextVar("_log", default=None)
_output: ContextVar[TextIO | None] = ContextVar("_output", default=None)
REQUESTS: Final = 4  # of one kind, until one is answered
REQUEST_INTERVAL: Final = 3.0  # seconds between them


def step(name: str, work: Callable[[], Result]) -> Result:
    """Run one step, log it to its own file, and print its duration.

    Raises:
        SystemExit: the step failed; the end of its log has been printed.
    """
    path, output = STATE / "log" / f"{name.replace(' ', '-')}.log", _output.get()
    print(f"{name:<28}", end="", flush=True, file=output)
    began = time.monotonic()
    try:
        with _logged(path):
            result = work()
    except (StepError, OSError, subprocess.CalledProcessError) as error:
        tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        sys.exit("\n".join([f"failed: {error}", *tail, f"(complete log: {path})"]))
    print(f"{time.monotonic() - began:7.1f} s", flush=True, file=output)
    return result


def do(steps: Steps) -> None:
    """Run steps in turn."""
    for name, work in steps.items():
        step(name, work)


@contextmanager
def beside(steps: Steps) -> Iterator[None]:
    """Run steps in a thread while the block runs; what they print follows at its end."""

    def work() -> None:
        _output.set(printed)
        do(steps)

    printed = io.StringIO()
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        yield
        done.exception()  # waits
        print(printed.getvalue(), end="", flush=True)
        done.result()


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        token = _log.set(file)
        try:
            yield
        finally:
            _log.reset(token)


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, given: str = "") -> None:
    """Run a command into the step's log; ``given`` is its standard input.

    A request of kubectl is tried again: on a busy machine, the API server gives up on some.
    """
    for left in reversed(range(REQUESTS if command[0] == "kubectl" else 1)):
        done = subprocess.run(
            command,
            check=not left,
            cwd=cwd,
            env=ENVIRON | (env or {}),
            input=given,
            text=True,
            stdout=_log.get() or sys.stderr,
            stderr=_log.get() or sys.stderr,
        )
        if done.returncode == 0:
            return
        time.sleep(REQUEST_INTERVAL)


def read(*command: str | Path) -> str:
    """A command's output, stripped."""
    done = subprocess.run(
        command,
        check=True,
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=_log.get() or sys.stderr,
        text=True,
    )
    return done.stdout.strip()


def works(*command: str | Path, seconds: float = 10) -> bool:
    """Whether a command can be run and succeeds within ``seconds``; its output goes into the step's log, if any."""
    output = _log.get() or subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, check=False, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def eventually(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until a condition holds.

    Raises:
        StepError: it did not within ``seconds``.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise StepError(f"{what}: not after {seconds:g} s")
        time.sleep(0.2)


def finished(name: str, key: str) -> bool:
    """Whether the work ``name`` was done with the same inputs, which ``key`` identifies."""
    stamp = STATE / "stamp" / name
    return stamp.exists() and stamp.read_text(encoding="utf-8") == key


def finish(name: str, key: str) -> None:
    """Record finished work. Called last, so that a killed run repeats only its current step."""
    stamp = STATE / "stamp" / name
    stamp.parent.mkdir(parents=True, exist_ok=True)
    new = stamp.with_suffix(".new")
    new.write_text(key, encoding="utf-8")
    new.replace(stamp)


def forget(name: str) -> None:
    """Have the work ``name`` done again."""
    (STATE / "stamp" / name).unlink(missing_ok=True)


def digest(*parts: str | Path) -> str:
    """A short digest of texts, files and folders of files."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(part.encode())
            continue
        for file in [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file()):
            total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:16]


@contextmanager
def alone() -> Iterator[None]:
    """One run at a time; a second one waits. Children do not inherit the lock, so a daemon does not hold it."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another run", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_root() -> bool:
    """Whether packages may be installed and daemons started."""
    return os.geteuid() == 0
