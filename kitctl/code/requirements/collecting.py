"""Collects a job's requirements for sending: one file, and the wheels of local folders."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from msgspec.structs import replace

from kitctl.base.quantity import format_bytes
from kitctl.code.code_tree import FOLDER_LIMIT, CodeFile, CodeTree, SentFolder
from kitctl.code.credentials import has_credential
from kitctl.code.requirements import consent, packages
from kitctl.code.requirements.lines import FIELD, Requirements, read_file
from kitctl.code.requirements.pyproject import dependencies
from kitctl.code.workdir.archive import small_archive
from kitctl.code.workdir.patterns import wrong
from kitctl.code.workdir.reading import content, file_of, largest
from kitjob.sections import Requirements as Section

FILE: Final = "requirements.txt"  # of what is sent; ``kittrain.agent.setup.pip_install`` reads it
CONSTRAINTS: Final = "constraints.txt"
WHEELS: Final = "wheels"
LINKS: Final = "requirements.findLinks"
NO_PACKAGES: Final = "no package"  # why an archive is left out
_PYPROJECT: Final = re.compile(r"(.*\.toml)(?:\[([^\]]*)\])?")


def collect(section: Section, folder: Path) -> SentFolder:
    """Collect the requirements of a job that is submitted from ``folder``.

    Raises:
        SpecError: a file is missing, not understood, or may not be sent, or the wheels are too large together.
    """
    path, found = _requirements(section.file, folder)
    named = [(folder, link) for link in section.find_links]
    links = [*((path.parent, link) for link in found.links), *named]
    by_user = _by_user(named, folder)
    by_lines = [place for base, link in links[: len(found.links)] if (place := _local(base, link))]
    _require_consent(by_lines, by_user, consent.project(path, folder))
    elsewhere = [link for base, link in links if not _local(base, link)]
    wheels, others = _wheels([*by_lines, *by_user])
    text = _text(section, found, [*elsewhere, *([WHEELS] if wheels else [])])
    places: dict[str, Path | bytes] = {FILE: text, **wheels}
    if found.constraints:
        places[CONSTRAINTS] = _lines(found.constraints)
    tree = CodeTree(files={name: _file(place) for name, place in sorted(places.items())})
    lines = [*found.lines, *found.options, *found.links, *found.constraints, *section.find_links]
    sent = SentFolder(
        folder=path,
        tree=tree,
        archive=None,
        key="requirements",
        places=places,
        left_out={NO_PACKAGES: others} if others else {},
        credentials=(path.name,) if any(map(has_credential, lines)) else (),
    )
    return replace(sent, archive=small_archive(tree, partial(content, sent)))


def _requirements(file: str, folder: Path) -> tuple[Path, Requirements]:
    match = _PYPROJECT.fullmatch(file)
    path = folder / Path(match[1] if match else file).expanduser()
    consent.require_own_link(path, folder, FIELD)
    if match:
        extras = [extra.strip() for extra in (match[2] or "").split(",") if extra.strip()]
        return path, Requirements(lines=dependencies(consent.read_text(path), path.name, extras))
    found = read_file(path, partial(_read, path, consent.project(path, folder)))
    if not found.lines:
        raise wrong(FIELD, f"{path} names no requirements", "name a file with a requirement on each line")
    return path, found


def _read(first: Path, project: Path, path: PurePath) -> str:
    """Read the file that the user names, or one that its lines name."""
    if path != first:
        consent.require_in_project(
            Path(path), project, FIELD, f"copy it to {project}, under a name without a dot first"
        )
    return consent.read_text(path)


def _by_user(named: Iterable[tuple[Path, str]], folder: Path) -> list[Path]:
    """The local folders that the user names."""
    found = [place for base, link in named if (place := _local(base, link))]
    for place in found:
        consent.require_own_link(place, folder, LINKS)
    return found


def _require_consent(by_lines: Iterable[Path], by_user: Iterable[Path], project: Path) -> None:
    """Check folders that lines of a file name: each is in the project, or the user names it as well."""
    known = {os.path.realpath(place) for place in by_user}
    for place in by_lines:
        if os.path.realpath(place) not in known:
            fix = f"to send its wheels, name it yourself: --find-links {place}"
            consent.require_in_project(place, project, FIELD, fix)


def _local(base: Path, link: str) -> Path | None:
    """The local folder of a link; None for a URL, and for a folder that only the nodes have.

    Raises:
        SpecError: it is a relative path to no folder.
    """
    if "://" in link or link.startswith("file:"):
        return None
    path = base / Path(link).expanduser()
    if path.is_dir():
        return path
    if not Path(link).is_absolute():
        raise wrong(LINKS, f"{path} is not a folder", "give a folder with wheels, a URL, or a path in the nodes")
    return None


def _wheels(folders: Iterable[Path]) -> tuple[Mapping[str, Path], tuple[str, ...]]:
    """The packages in folders, by the path that they are sent as; and the archives there that are no packages."""
    found: dict[str, Path] = {}
    others: list[str] = []
    for folder in folders:
        own, rest = _packages(folder)
        others += rest
        if not own:
            raise wrong(LINKS, f"{folder} has no wheels", "build them: pip wheel -w DIR -r requirements.txt")
        for path in own:
            other = found.setdefault(f"{WHEELS}/{path.name}", path)
            if other != path and other.read_bytes() != path.read_bytes():
                raise wrong(LINKS, f"{path.name} is in {other.parent} and in {folder}, and differs", "remove one")
    sizes = {path.name: path.stat().st_size for path in found.values()}
    if (total := sum(sizes.values())) > FOLDER_LIMIT:
        what = f"{format_bytes(total)} are more than the {format_bytes(FOLDER_LIMIT)} that can be sent"
        fix = "put them on a volume, and give its path there, as in --find-links /data/wheels"
        raise wrong(LINKS, f"{what}; the largest: {largest(sizes)}", fix)
    return found, tuple(dict.fromkeys(others))


def _packages(folder: Path) -> tuple[list[Path], list[str]]:
    """The packages of a folder, and the names of archives that are none.

    Raises:
        SpecError: a link leads out of the folder, or one cannot be read.
    """
    own: list[Path] = []
    others: list[str] = []
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(packages.ENDINGS) or not path.is_file():
            continue
        consent.require_in_folder(path, folder, LINKS)
        try:
            is_package = packages.is_package(path)
        except OSError as error:
            raise wrong(LINKS, f"{path} cannot be read: {error.strerror or error}", "make it readable") from error
        if is_package:
            own.append(path)
        else:
            others.append(path.name)
    return own, others


def _text(section: Section, found: Requirements, links: Iterable[str]) -> bytes:
    """The one file: options first, those of the job after those of files, since of two indexes the last one counts."""
    return _lines([*found.options, *_options(section), *(f"--find-links {link}" for link in links), *found.lines])


def _options(section: Section) -> Iterator[str]:
    if section.index_url:
        yield f"--index-url {section.index_url}"
    yield from (f"--extra-index-url {url}" for url in section.extra_index_urls)
    if section.no_index:
        yield "--no-index"


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _file(place: Path | bytes) -> CodeFile:
    if isinstance(place, bytes):
        return CodeFile(sha256=hashlib.sha256(place).hexdigest(), size=len(place))
    return file_of(place, place.name)
