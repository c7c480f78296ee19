"""The workloads that come with kitctl: their names, and their scripts as starting points."""

from __future__ import annotations

import importlib.util
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from kitctl.base.errors import KitError, UsageError

# Each is a module of kittrain.workloads; a test compares.
WORKLOADS: Final = {
    "allreduce": "check that all ranks reach each other, and measure how fast",
    "digits": "a small network on handwritten digits",
    "mnist": "a convolutional network on MNIST or Fashion-MNIST",
    "text": "a transformer that classifies documentation by library",
    "lm": "a small GPT on Python's reference pages, optionally sharded",
    "toy": "a linear regression, to try out launches",
}
# As help and errors name them: "allreduce, ..., lm or toy".
NAMED: Final = f"{', '.join([*WORKLOADS][:-1])} or {[*WORKLOADS][-1]}"
_PACKAGE: Final = "kittrain.workloads"


def module(name: str) -> str:
    """The module of a workload.

    Raises:
        UsageError: there is no such workload.
    """
    if name not in WORKLOADS:
        near = get_close_matches(name, WORKLOADS, n=1)
        fix = f"did you mean {near[0]}?" if near else "choose one of these"
        raise UsageError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}", fix=fix)
    return f"{_PACKAGE}.{name}"


def script(name: str, file: str) -> str:
    """The script of a workload, with ``file`` as its name in the examples at its top.

    Raises:
        UsageError: there is no such workload.
        KitError: kittrain, which has it, is not installed here.
    """
    path = module(name)
    package = importlib.util.find_spec(_PACKAGE.partition(".")[0])  # found, not imported
    if package is None or not package.submodule_search_locations:
        raise KitError("the package kittrain is not installed here", fix="install kitctl again: it comes with it")
    text = Path(package.submodule_search_locations[0], "workloads", f"{name}.py").read_text(encoding="utf-8")
    return (
        text.replace(f"python -m {path}", f"python {file}")
        .replace(f"-- -m {path}", f"-- {file}")
        .replace(f"-m {path}", file)
    )
