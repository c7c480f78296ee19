"""Typed values from environment variables. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class EnvError(Exception):
    """The environment does not hold what the manifests promise; names the variable."""


def text_of(environ: Mapping[str, str], name: str, default: str) -> str:
    """A variable's text; the default where it is empty or not set."""
    return environ.get(name) or default


def number_of(name: str, text: str) -> int:
    """A whole number, given as a variable's text.

    Raises:
        EnvError: it is none.
    """
    try:
        return int(text)
    except ValueError as error:
        raise EnvError(f"{name}={text!r}: not a whole number") from error


def optional_number(environ: Mapping[str, str], name: str) -> int | None:
    """A variable's whole number; None where it is empty or not set.

    Raises:
        EnvError: it is none.
    """
    text = environ.get(name)
    return number_of(name, text) if text else None


def path_of(environ: Mapping[str, str], name: str) -> Path | None:
    """A variable's path; None where it is empty or not set."""
    text = environ.get(name)
    return Path(text) if text else None


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
