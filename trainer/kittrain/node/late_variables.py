"""Tells of variables that a script sets for torch once torch is imported, as it is in a rank that is forked warm.

``os.environ["OMP_NUM_THREADS"] = "4"`` ahead of ``import torch`` counts in a new interpreter, and not there.
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
    """Tell of each such variable once, as soon as a script sets it; does nothing where torch is not imported."""
    if "torch" not in sys.modules:
        return
    put = os.putenv
    told: set[str] = set()

    def putenv(name: Text, value: Text) -> None:
        put(name, value)
        text = os.fsdecode(name)
        if not read_at_import(text) or text in told or os.environ.get(text) == os.fsdecode(value):
            return
        if place := script_place(inspect.currentframe()):
            told.add(text)
            sys.stderr.write(f"warning: {late(text, os.fsdecode(value), place)}\n")

    os.putenv = putenv  # what ``os.environ`` calls


def late(name: str, value: str, place: str) -> str:
    """What to say of a variable that is set too late, and the fix. Pure."""
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
