"""Parses requirements files as pip does, as far as needed to send them as one file. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from kitctl.code.workdir.patterns import wrong

FIELD: Final = "requirements.file"
Read = Callable[[PurePath], str]  # a file's text

_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_OPTION: Final = re.compile(r"(--[a-z-]+|-[a-zA-Z])(?:\s*=\s*|\s+|(?<=^-[a-zA-Z])|$)(.*)")
# A requirement as in PEP 508, so that no line of another kind of file is one: neither NAME=value nor "user secret".
_VERSION: Final = r"(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9._*+!-]+"
_VERSIONS: Final = rf"{_VERSION}(\s*,\s*{_VERSION})*\s*,?"
_NAMED: Final = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\s*(\[[A-Za-z0-9._,\s-]*\])?"
    rf"(\s*({_VERSIONS}|\(\s*{_VERSIONS}\s*\))|\s*@\s*\S+(?=\s|$))?\s*(;.*)?"
)
_WORD: Final = re.compile(r"[^\s=:]*")  # what is shown of a line that may be of a private file
_LOCAL: Final = re.compile(r"[./~]|file:|[A-Za-z]:\\|(?!.*://).*\.(whl|zip|tar\.gz|tar\.bz2)$")
_AT_A_PATH: Final = re.compile(r"[^\s@]+\s*@\s*(file:|[./])")
_LONG: Final = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-e": "--editable",
    "-f": "--find-links",
    "-i": "--index-url",
    "--pypi-url": "--index-url",
}
# Options of pip's requirements files that are sent unchanged.
_KEPT: Final = frozenset(
    {
        *("--index-url", "--extra-index-url", "--no-index", "--pre", "--prefer-binary", "--no-binary", "--only-binary"),
        *("--require-hashes", "--trusted-host", "--use-feature"),
    }
)


@dataclass
class Requirements:
    """The requirements in a file, and in those that it includes by ``-r`` and ``-c``.

    ``links`` are the values of ``--find-links``, seen from the folder of the first file.
    """

    lines: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def read_file(path: PurePath, read: Read) -> Requirements:
    """The requirements of a file.

    Args:
        path: the file.
        read: reads it, and those that it names.

    Raises:
        SpecError: a line is not understood, or names what cannot be sent.
    """
    found = Requirements()
    _read(found, path, read, found.lines, ())
    return found


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their first line's number: continued ones joined, comments and empty ones left out."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            joined += line[:-1]
            continue
        if whole := _COMMENT.sub("", joined + line).strip():
            yield first, whole
        joined, first = "", 0
    if whole := _COMMENT.sub("", joined).strip():
        yield first, whole


def require_named(line: str, where: str) -> str:
    """A requirement that an index or a wheel folder can fulfil, without needless spaces.

    Raises:
        SpecError: it is a path, or no requirement at all.
    """
    if _LOCAL.match(line) or _AT_A_PATH.match(line):
        fix = "put its wheel into a folder that is sent (--find-links DIR), and write its name"
        raise wrong(FIELD, f"{where}: {line} is a path on this machine", fix)
    if not _NAMED.fullmatch(line.partition(" --")[0]):
        shown = _WORD.match(line)
        start = f"{shown[0] if shown else ''}..."
        raise wrong(FIELD, f"{where}: {start!r} is not a requirement", "write it like name, name>=1.2 or name[extra]")
    return line


def _read(found: Requirements, path: PurePath, read: Read, into: list[str], above: Iterable[PurePath]) -> None:
    """Add a file's content; ``into`` takes its requirements, ``above`` are the files that name it."""
    above = (*above, path)
    for number, line in logical_lines(read(path)):
        where = f"{path.name}, line {number}"
        if not line.startswith("-"):
            into.append(require_named(line, where))
            continue
        name, value = _option(line, where)
        if name in {"--requirement", "--constraint"}:
            if "://" in value:
                raise wrong(FIELD, f"{where}: {value} is not on this machine", "copy it into the folder, and name that")
            other = path.parent / value
            if other in above:
                raise wrong(FIELD, f"{where}: {value} names itself again", "remove the circle")
            _read(found, other, read, into if name == "--requirement" else found.constraints, above)
        elif name == "--find-links":
            found.links.append(_seen_from_above(value, path, above[0]))
        elif name in _KEPT:
            found.options.append(f"{name} {value}".strip())
        else:
            raise wrong(FIELD, f"{where}: {line} cannot be sent", _fix(name))


def _option(line: str, where: str) -> tuple[str, str]:
    """An option's long name, and its value."""
    match = _OPTION.fullmatch(line)
    if match is None:
        raise wrong(FIELD, f"{where}: {line!r} is not an option of a requirements file", "see pip's documentation")
    return _LONG.get(match[1], match[1]), match[2].strip().strip("\"'")


def _seen_from_above(value: str, path: PurePath, first: PurePath) -> str:
    """A link of a file in another folder, from the first file's folder on."""
    if "://" in value or value.startswith(("file:", "/", "~")) or path.parent == first.parent:
        return value
    return str(path.parent / value)


def _fix(option: str) -> str:
    if option == "--editable":
        return "send the folder with --workdir, or its wheel with --find-links DIR (pip wheel --no-deps -w DIR .)"
    return "leave it out"
