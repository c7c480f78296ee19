"""What the benchmarks on the test cluster share: its programs, a namespace, and a manifest as one would write it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import ENVIRON, TRAINER_IMAGE
from tests.cluster.kubectl import kubectl

KITCTL = (sys.executable, "-m", "kitctl")
# Modules are compiled once and kept, as on a user's machine.
SHELL = {name: value for name, value in ENVIRON.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def namespace() -> Iterator[str]:
    """A namespace that is deleted with all that is in it."""
    name = f"bench-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name)


def job(name: str, where: str, *arguments: str) -> list[str]:
    """The options of a job of three nodes, for ``submit`` and ``render`` alike."""
    return ["--name", name, "--namespace", where, "--nodes", "3", "--image", pushed(TRAINER_IMAGE), *arguments]


def manifest(options: list[str]) -> str:
    """The same job as plain objects, for ``kubectl apply``."""
    command = [*KITCTL, "render", "-o", "json", *options]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=SHELL).stdout
