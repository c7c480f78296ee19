"""Run one step: log its output, print its duration, and record finished work."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Final, TextIO, TypeAlias, TypeVar

from tests.cluster.kind.settings import ENVIRON, STATE


class StepError(Exception):
    """A step failed; the message has the reason and the fix."""


Steps: TypeAlias = Mapping[str, Callable[[], None]]
Result = TypeVar("Result")
_log: ContextVar[TextIO | None] = ContextVar("_log", default=None)  # of the step that runs in this thread
_shared: ContextVar[bool] = ContextVar("_shared", default=False)  # whether two threads run steps and print
REQUESTS: Final = 4  # of one kind, until one is answered
REQUEST_INTERVAL: Final = 3.0  # seconds between them


def step(name: str, work: Callable[[], Result]) -> Result:
    """Run one step, log it to its own file, and print its duration.

    Raises:
        SystemExit: the step failed; the end of its log has been printed.
    """
    path, shared = STATE / "log" / f"{name.replace(' ', '-')}.log", _shared.get()
    title = f"{name:<28}"
    if not shared:
        print(title, end="", flush=True)
    began = time.monotonic()
    try:
        with _logged(path):
            result = work()
    except (StepError, OSError, subprocess.CalledProcessError) as error:
        tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        failed = f"{title if shared else ''}failed: {error}"
        sys.exit("\n".join([failed, *tail, f"(complete log: {path})"]))
    sys.stdout.write(f"{title if shared else ''}{time.monotonic() - began:7.1f} s\n")  # at once: a line stays whole
    sys.stdout.flush()
    return result


def do(steps: Steps) -> None:
    """Run steps in turn."""
    for name, work in steps.items():
        step(name, work)


@contextmanager
def beside(steps: Steps) -> Iterator[None]:
    """Run steps in a thread while the block runs; of both, a line is printed as each step ends."""
    print(f"{'meanwhile':<28}{', '.join(steps)}", flush=True)
    token = _shared.set(True)
    try:
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(copy_context().run, do, steps)
            yield
            done.result()
    finally:
        _shared.reset(token)


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
