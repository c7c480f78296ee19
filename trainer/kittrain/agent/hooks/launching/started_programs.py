"""Programs of Python that a rank starts, as a launcher of a repository's own does: steps that these take are not seen.

A rank that has started some, and has taken no step itself, says so at its end.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import UNSEEN_PROGRAMS
from kittrain.system.imports import after_import

_PYTHON: Final = re.compile(r"python[\d.]*")
_INSTALLED: Final = re.compile(r"(?:torch|pip|kittrain)\b|.*/(?:site|dist)-packages/|.*/lib/python[\d.]+/")


class StartedPrograms:
    """Those of one rank.

    Args:
        steps: how many it has taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._rank = os.getpid()
        self._names: list[str] = []

    def watch(self) -> None:
        """Watch what the script starts."""
        after_import("subprocess", self._as_programs)

    def _as_programs(self, module: ModuleType) -> None:
        start: Callable[..., None] = module.Popen.__init__

        @in_place_of(start)
        def start_and_note(popen: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
            start(popen, args, *rest, **kwargs)
            if (name := program(args)) and os.getpid() == self._rank:
                if not self._names:
                    atexit.register(self.tell)
                self._names.append(name)

        module.Popen.__init__ = start_and_note

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._names and os.getpid() == self._rank and not self._steps():
            sys.stderr.write(f"note: {UNSEEN_PROGRAMS}{len(self._names)} of {self._names[0]}\n")


def program(command: object) -> str:
    """The script or module that Python runs by a command: ``train.py``; empty if it runs none, or an installed one.

    Args:
        command: as ``subprocess`` takes it.
    """
    try:
        words = shlex.split(command) if isinstance(command, str) else [os.fsdecode(word) for word in _words(command)]
    except ValueError:  # a quotation that a shell may understand
        return ""
    if not words or not (_PYTHON.fullmatch(PurePath(words[0]).name) or words[0] == sys.executable):
        return ""
    for word, after in pairwise([*words[1:], ""]):
        if word == "-m":
            return "" if _INSTALLED.match(after) else after
        if word.endswith(".py"):
            return "" if _INSTALLED.search(word) else PurePath(word).name
        if word == "-c" or not word.startswith("-"):
            return ""
    return ""


def _words(command: object) -> Sequence[Any]:
    given = command if isinstance(command, Sequence) and not isinstance(command, bytes) else []
    return given if all(isinstance(word, str | bytes | os.PathLike) for word in given) else []
