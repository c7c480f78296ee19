"""Wraps functions of modules that a script calls, so that kittrain knows of a call; the call itself is not changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from kittrain.agent.hooks.wrapping import in_place_of


def watch_calls(owner: Any, name: str, called: Callable[..., object]) -> Callable[..., Any] | None:
    """Call ``called`` with the same arguments after each call that succeeds; what it raises is ignored.

    Args:
        owner: a module or a class. Without such a function (another version, or a module of the script's own by this
            name) nothing is done.
        name: of the function; packages around the module may have it, too.
        called: for example, it fails for a buffer where it expects a file.

    Returns:
        The new function.
    """

    def without_result(_result: object, /, *args: Any, **kwargs: Any) -> None:
        called(*args, **kwargs)

    return watch_results(owner, name, without_result)


def watch_results(owner: Any, name: str, called: Callable[..., object]) -> Callable[..., Any] | None:
    """Do the same, with what the call has returned before its arguments."""
    function: Callable[..., Any] | None = getattr(owner, name, None)
    if function is None:
        return None

    @in_place_of(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with suppress(Exception):
            called(result, *args, **kwargs)
        return result

    replace(owner, name, call)
    return call


def replace(owner: Any, name: str, call: Callable[..., Any]) -> None:
    """Put ``call`` in place of a function, in the packages around the module, too, if these have the same."""
    function = getattr(owner, name)
    for holder in (owner, *_packages(owner)):
        if vars(holder).get(name) is function:
            setattr(holder, name, call)


def _packages(owner: Any) -> Iterator[ModuleType]:
    """The packages around a module that are imported already."""
    package = getattr(owner, "__package__", "")
    if package in sys.modules:
        yield sys.modules[package]
