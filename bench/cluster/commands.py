"""Helpers of the benchmarks on the test cluster: commands, a namespace, and a job's manifest."""

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
# Bytecode is cached, as on a user's machine.
SHELL = {name: value for name, value in ENVIRON.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def temporary_namespace() -> Iterator[str]:
    """A namespace that is deleted on exit."""
    name = f"bench-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name)


def job(name: str, namespace: str, *arguments: str, nodes: str = "3") -> list[str]:
    """The options of a job, for both ``submit`` and ``render``."""
    return ["--name", name, "--namespace", namespace, "--nodes", nodes, "--image", pushed(TRAINER_IMAGE), *arguments]


def manifest(options: list[str]) -> str:
    """The manifest of the same job, for ``kubectl apply``."""
    command = [*KITCTL, "render", "-o", "json", *options]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=SHELL).stdout
