"""A progress bar, and lines that do not break it; without the package tqdm, which an image need not have, no bar."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass
class NoBar:
    """What a run without a bar has instead; with the attributes and methods of tqdm's that are used."""

    total: int | None
    n: int = 0
    initial: int = 0
    disable: bool = True

    def close(self) -> None:
        """Nothing to close."""

    def refresh(self) -> None:
        """Nothing to draw."""


def progress_bar(total: int | None, *, shown: bool) -> Any:
    """A bar of this many steps, on stderr."""
    if shown:
        with suppress(ModuleNotFoundError):
            from tqdm import tqdm  # noqa: PLC0415 - few ranks have a terminal

            return tqdm(total=total, unit="step")
    return NoBar(total)


def write(text: str) -> None:
    """Print a line to stdout, above a bar if there is one, anyone's."""
    tqdm = sys.modules.get("tqdm")
    if tqdm:
        tqdm.tqdm.write(text, file=sys.stdout)
    else:
        print(text)  # noqa: T201
    sys.stdout.flush()
