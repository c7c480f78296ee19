"""Typed values from environment variables. Standard library only."""

from __future__ import annotations


class EnvError(Exception):
    """The environment does not hold what the manifests promise; names the variable."""


def number_of(name: str, text: str) -> int:
    """A whole number, given as a variable's text.

    Raises:
        EnvError: it is none.
    """
    try:
        return int(text)
    except ValueError as error:
        raise EnvError(f"{name}={text!r}: not a whole number") from error


def pairs_of(name: str, text: str) -> dict[str, str]:
    """``key=value,key=value``, given as a variable's text.

    Raises:
        EnvError: an item has no ``=``.
    """
    pairs = {}
    for item in filter(None, text.split(",")):
        key, sign, value = item.partition("=")
        if not sign:
            raise EnvError(f"{name}={text!r}: {item!r} is not key=value")
        pairs[key.strip()] = value.strip()
    return pairs
