"""Run kubectl on the test cluster."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.cluster.kind.settings import SHORT_COMMANDS

Object = dict[str, Any]


def kubectl(*arguments: str, given: str = "") -> str:
    """Output of kubectl; ``given`` is its standard input."""
    done = subprocess.run(
        ["kubectl", *arguments], check=False, env=SHORT_COMMANDS, input=given, capture_output=True, text=True
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def apply(namespace: str, *objects: Object) -> None:
    """Server-side apply, as JSON, as kitctl does it."""
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", given=given)


def get(namespace: str, *what: str) -> Object:
    """An object, or a list of them (``items``)."""
    found: Object = json.loads(kubectl("get", "-n", namespace, *what, "-o", "json"))
    return found


def until(condition: Callable[[], object], *, seconds: float = 120) -> None:
    """Wait until a condition holds; the time is an upper bound, not a measurement."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds:g} s"
        time.sleep(min(0.5 + waited / 10, 3))  # most conditions start kubectl: a tenth of a CPU second
