"""Frames of stacks and tracebacks: which are the user's, and which of a library, so that these can be folded. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from kitctl.base.quantity import pluralize

T = TypeVar("T")
# Compiled by `re` when they are first used, and kept there: kitctl starts sooner.
_PACKAGE = r".*/(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/|$)"
_PYTHON = r"<frozen |.*/lib/python3(?:\.\d+)?/|<string>"
_OWN = r".*/(kittrain|kitjob)/(?!workloads/)"  # the bundled workloads count as the user's


def package_of(file: str) -> str:
    """The library that a source file belongs to; empty: it is the user's."""
    if own := re.match(_OWN, file):
        return own[1]
    if package := re.match(_PACKAGE, file):
        return "" if package[1] == "kittrain" else package[1]
    return "Python" if re.match(_PYTHON, file) else ""


def folded(frames: Sequence[T], file_of: Callable[[T], str], *, kept: int = 1) -> list[T | str]:
    """The frames, with those of libraries as a line that counts them.

    The user's stay, and so does a single one of a library.

    Args:
        frames: of a stack.
        file_of: the source file of each.
        kept: how many at the begin stay, whosever they are: where a stack is.
    """
    shown: list[T | str] = [*frames[:kept]]
    for of_library, group in groupby(frames[kept:], lambda frame: bool(package_of(file_of(frame)))):
        some = list(group)
        if of_library and len(some) > 1:
            shown.append(note(package_of(file_of(one)) for one in some))
        else:
            shown += some
    return shown


def note(packages: Iterator[str]) -> str:
    """``... 12 frames of torch, 3 of kittrain``."""
    counts = Counter(packages).most_common()
    first, *rest = counts
    more = "".join(f", {count} of {name}" for name, count in rest)
    return f"... {pluralize(first[1], 'frame')} of {first[0]}{more}"
