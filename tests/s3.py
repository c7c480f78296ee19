"""A real S3 server for tests: versitygw over a folder, built like the test cluster's programs, served on loopback.

Its own answers are as Amazon's: signatures and clocks are checked, conditional writes are honoured.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.kind import programs
from tests.cluster.kind.settings import BIN, ENVIRON, STATE
from tests.trainer.nodes import free_port

PROGRAM: Final = "versitygw"
ACCESS: Final = "mirror-tests"
SECRET: Final = "not-to-be-shown-anywhere"
START_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class S3:
    """A running server.

    Attributes:
        url: of its endpoint.
        root: its folder: a bucket is a folder in it, an object a file.
    """

    url: str
    root: Path

    def bucket(self, name: str) -> Path:
        """Make a bucket; returns its folder."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        return folder

    def environ(self, url: str = "") -> dict[str, str]:
        """What a client's environment has; ``url``: of something in front of the server."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_REGION": "us-east-1",
        }


def program() -> Path:
    """The server's program; built once, by one test at a time.

    Without a Go toolchain the test is skipped, which is a failure in CI.
    """
    if shutil.which("go", path=ENVIRON["PATH"]) is None:
        pytest.skip("no Go toolchain to build an S3 server with")
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / f"{PROGRAM}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        programs.build(PROGRAM)
    return BIN / PROGRAM


@contextmanager
def serving(
    folder: Path, *, host: str = "127.0.0.1", before: tuple[str, ...] = (), extra: Mapping[str, str] | None = None
) -> Iterator[S3]:
    """A server over a new folder, until the context ends.

    Args:
        folder: what it keeps is below it.
        host: the address that it listens at.
        before: a command that starts it.
        extra: for its environment.
    """
    root = folder / "root"
    root.mkdir(parents=True)
    number = free_port()
    command = [*before, str(program()), "--access", ACCESS, "--secret", SECRET, "--port", f"{host}:{number}"]
    command += ["--iam-dir", str(_made(folder / "users"))]
    server = S3(url=f"http://{host}:{number}", root=root)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--quiet", "posix", "--sidecar", str(_made(folder / "sidecar")), str(root)],
            stdout=log,
            stderr=log,
            env={**os.environ, **(extra or {})},
            start_new_session=True,
        )
        try:
            _await(server.url, process, folder / "log")
            yield server
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers anything."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=5)  # an error is an answer
        except urllib.error.HTTPError:
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        else:
            return
