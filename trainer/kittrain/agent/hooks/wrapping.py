"""Functions that stand in for those of libraries, and that nobody notices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

Wrapper = TypeVar("Wrapper", bound=Callable[..., Any])
SKIPPED: Final = " (as importlib._bootstrap)"  # what ``warnings`` takes for frames of the import system has both names


def in_place_of(function: Callable[..., Any]) -> Callable[[Wrapper], Wrapper]:
    """A decorator of what calls ``function``: it has its name and its documentation, and warnings skip its frame.

    A library warns at the line that calls it (``stacklevel=2``). That stays the script's, for the reader, and for
    filters by module.
    """

    def decorate(wrapper: Wrapper) -> Wrapper:
        code = wrapper.__code__
        wrapper.__code__ = code.replace(co_filename=f"{code.co_filename}{SKIPPED}")
        functools.update_wrapper(wrapper, function)
        return wrapper

    return decorate
