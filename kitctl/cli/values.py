"""Parse the values of flags (``K=V``, ``claim:/path``, ``key=value:Effect``) into parts of a job file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import click

_MAX_DIGITS = 18  # enough for any number that a field accepts


def parse_int(text: str) -> int | str:
    """A number, if the text is one; ``2:4`` and ``auto`` stay text, which the spec checks."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else text


def resume_state(given: bool) -> str | None:
    """``--resume-state`` as the field's value."""
    return "state" if given else None


def pairs(items: Iterable[str]) -> dict[str, str]:
    """``["a=b", ...]`` as a mapping; the last of equal keys wins."""
    return dict(_pair(item) for item in items)


def variables(items: Iterable[str]) -> dict[str, str]:
    """As ``pairs``; ``K`` alone is copied from the environment."""
    return dict(_pair(item) if "=" in item else (item, _from_environment(item)) for item in items)


def variables_of_files(paths: Sequence[str]) -> dict[str, str]:
    """``K=V`` lines of files; blank lines and lines that begin with # are skipped."""
    lines = [line.strip() for path in paths for line in _text(path).splitlines()]
    return variables(line for line in lines if line and not line.startswith("#"))


def pod_of_file(path: str) -> dict[str, Any]:
    """A file with keys of a job file's section ``pod``, such as ``spec``.

    Raises:
        SpecError: with one line for every problem.
        UsageError: it is no YAML mapping.
    """
    from kitctl.base import yamlstrict
    from kitctl.base.errors import SpecError
    from kitctl.base.field_type import FieldType
    from kitjob.pod_section import Pod

    mapping, problems = yamlstrict.read(_text(path), path, FieldType(Pod))
    if problems:
        raise SpecError(problems, source=path)
    return mapping


def volumes(items: Iterable[str]) -> list[dict[str, Any]]:
    """``claim:/path`` or ``claim:/path:ro``."""
    return [_volume(item) for item in items]


def tolerations(items: Iterable[str]) -> list[dict[str, str]]:
    """``key``, ``key=value``, ``key:Effect`` or ``key=value:Effect``."""
    return [_toleration(item) for item in items]


def _pair(item: str) -> tuple[str, str]:
    key, sign, value = item.partition("=")
    if not (key and sign):
        raise click.BadParameter(f"{item!r} is not KEY=VALUE")
    return key, value


def _from_environment(name: str) -> str:
    if name not in os.environ:
        raise click.BadParameter(f"{name} is not set in your environment; give {name}=VALUE, or set it")
    return os.environ[name]


def _text(path: str) -> str:
    try:
        from pathlib import Path

        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}") from error


def _volume(item: str) -> dict[str, Any]:
    match item.split(":"):
        case [claim, path] if claim and path:
            return {"claim": claim, "mountPath": path}
        case [claim, path, "ro"] if claim and path:
            return {"claim": claim, "mountPath": path, "readOnly": True}
        case _:
            raise click.BadParameter(f"{item!r} is not CLAIM:/PATH or CLAIM:/PATH:ro")


def _toleration(item: str) -> dict[str, str]:
    taint, _, effect = item.partition(":")
    key, sign, value = taint.partition("=")
    parts = {"key": key, "operator": "Equal" if sign else "Exists", "value": value, "effect": effect}
    return {name: text for name, text in parts.items() if text}
