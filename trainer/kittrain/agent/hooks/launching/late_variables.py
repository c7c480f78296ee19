"""Warns about environment variables that a script sets for torch after torch was imported, as in a warm rank.

``os.environ["OMP_NUM_THREADS"] = "4"`` before ``import torch`` works in a new interpreter, but not in a warm rank.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

from kittrain.system.reexec import read_at_import

Text: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})  # in the path of each package
SETTERS: Final = (os.__file__, "<frozen os>", "<frozen _collections_abc>", __file__)
STDLIB: Final = sysconfig.get_path("stdlib")


def watch() -> None:
    """Warn once about each such variable when a script sets it. Does nothing if torch is not imported."""
    if "torch" not in sys.modules:
        return
    put = os.putenv
    read = {name: text for name, text in os.environ.items() if read_at_import(name)}  # by torch, as it was imported
    warned: set[str] = set()

    def putenv(name: Text, value: Text) -> None:
        put(name, value)
        text = os.fsdecode(name)
        if not read_at_import(text) or text in warned or read.get(text) == os.fsdecode(value):
            return
        if place := script_place(inspect.currentframe()):
            warned.add(text)
            sys.stderr.write(f"warning: {late(text, os.fsdecode(value), place)}\n")

    os.putenv = putenv  # what ``os.environ`` calls


def late(name: str, value: str, place: str) -> str:
    """The warning about a variable that is set too late, with the fix. Pure."""
    fix = f"kitctl submit --env {name}={value}, or --env KIT_WARM_WORKERS=0 to start each rank as a new interpreter"
    return f"{place} sets {name}, which has no effect: torch is imported already and has read it; fix: {fix}"


def script_place(frame: FrameType | None) -> str:
    """Where a variable is set, as ``train.py:3``; empty if that is in an installed package, or in Python itself."""
    while frame and frame.f_code.co_filename in SETTERS:
        frame = frame.f_back
    if frame is None:
        return ""
    path = Path(frame.f_code.co_filename)
    installed = not INSTALLED.isdisjoint(path.parts) or path.is_relative_to(STDLIB) or "kittrain" in path.parts
    return "" if installed else f"{path.name}:{frame.f_lineno}"
