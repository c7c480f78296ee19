"""The dependencies of a pyproject.toml, and of its extras, as requirements. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kitctl.code.requirements.lines import FIELD, require_named
from kitctl.code.workdir.patterns import wrong

_EXTRAS: Final = re.compile(r"([A-Za-z0-9._-]+)\s*\[([^\]]*)\]\s*")


def dependencies(text: str, name: str, extras: Sequence[str]) -> list[str]:
    """The project's dependencies and those of the named extras, each once.

    Args:
        text: of the file.
        name: of the file, for messages.
        extras: names of ``[project.optional-dependencies]``, or of ``[dependency-groups]``.

    Raises:
        SpecError: it is no TOML, has no dependencies, or lacks an extra.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise wrong(FIELD, f"{name}: {error}", "correct this line") from error
    project = tables.get("project", {})
    if {"dependencies", "optional-dependencies"} & {*project.get("dynamic", [])}:
        raise wrong(FIELD, f"{name}: its dependencies are dynamic", "name the requirements file that they come from")
    own = [*project.get("dependencies", [])]
    more = [line for extra in extras for line in _extra(tables, name, extra, ())]
    found = [*dict.fromkeys(require_named(line.strip(), name) for line in [*own, *more])]
    if not found:
        fix = f"name one of its extras: {name}[{'|'.join(_extras(tables)) or 'EXTRA'}]"
        raise wrong(FIELD, f"{name} has no [project] dependencies", fix)
    return found


def _extras(tables: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The extras and the dependency groups, by name."""
    return {**tables.get("dependency-groups", {}), **tables.get("project", {}).get("optional-dependencies", {})}


def _extra(tables: Mapping[str, Any], name: str, extra: str, above: tuple[str, ...]) -> Iterator[str]:
    """The requirements of an extra, and of the extras that it names: ``own-name[other]``, or a group's include."""
    known = {_normalized(key): lines for key, lines in _extras(tables).items()}
    if _normalized(extra) not in known:
        fix = f"name one of {', '.join(_extras(tables))}" if known else "leave it out"
        raise wrong(FIELD, f"{name} has no extra {extra!r}", fix)
    if extra in above:
        raise wrong(FIELD, f"{name}: the extra {extra!r} names itself again", "remove the circle")
    own = _normalized(tables.get("project", {}).get("name", ""))
    for line in known[_normalized(extra)]:
        if isinstance(line, Mapping):
            others = [line.get("include-group", "")]
        else:
            match = _EXTRAS.fullmatch(line)
            others = match[2].split(",") if match and _normalized(match[1]) == own else []
            if not others:
                yield line
        for other in others:
            yield from _extra(tables, name, other.strip(), (*above, extra))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
