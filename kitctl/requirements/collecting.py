"""Collects a job's requirements for sending: one file, and the wheels of local folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from msgspec.structs import replace

from kitctl.code_tree import FOLDER_LIMIT, CodeFile, CodeTree, SentFolder
from kitctl.quantity import format_bytes
from kitctl.requirements.lines import FIELD, Requirements, read_file
from kitctl.requirements.pyproject import dependencies
from kitctl.sections import Requirements as Section
from kitctl.workdir.archive import small_archive
from kitctl.workdir.patterns import wrong
from kitctl.workdir.reading import content, file_of, largest

FILE: Final = "requirements.txt"  # of what is sent; ``kittrain.node.pip_install`` reads it
CONSTRAINTS: Final = "constraints.txt"
WHEELS: Final = "wheels"
LINKS: Final = "requirements.findLinks"
PACKAGES: Final = (".whl", ".tar.gz", ".zip")
_PYPROJECT: Final = re.compile(r"(.*\.toml)(?:\[([^\]]*)\])?")


def collect(section: Section, folder: Path) -> SentFolder:
    """Collect the requirements of a job that is submitted from ``folder``.

    Raises:
        SpecError: a file is missing or not understood, or the wheels are too large together.
    """
    path, found = _requirements(section.file, folder)
    links = [*((path.parent, link) for link in found.links), *((folder, link) for link in section.find_links)]
    folders = [place for base, link in links if (place := _local(base, link))]
    elsewhere = [link for base, link in links if not _local(base, link)]
    wheels = _wheels(folders)
    text = _text(section, found, [*elsewhere, *([WHEELS] if wheels else [])])
    places: dict[str, Path | bytes] = {FILE: text, **wheels}
    if found.constraints:
        places[CONSTRAINTS] = _lines(found.constraints)
    tree = CodeTree(files={name: _file(place) for name, place in sorted(places.items())})
    sent = SentFolder(folder=path, tree=tree, archive=None, key="requirements", places=places)
    return replace(sent, archive=small_archive(tree, partial(content, sent)))


def _requirements(file: str, folder: Path) -> tuple[Path, Requirements]:
    match = _PYPROJECT.fullmatch(file)
    path = folder / Path(match[1] if match else file).expanduser()
    if match:
        extras = [extra.strip() for extra in (match[2] or "").split(",") if extra.strip()]
        return path, Requirements(lines=dependencies(_read(path), path.name, extras))
    found = read_file(path, _read)
    if not found.lines:
        raise wrong(FIELD, f"{path} names no requirements", "name a file with a requirement on each line")
    return path, found


def _read(path: PurePath) -> str:
    try:
        return Path(path).read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise wrong(FIELD, f"{path} does not exist", "give a path from the folder that you submit from") from error
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(FIELD, f"{path} cannot be read: {error}", "give a text file in UTF-8") from error


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


def _wheels(folders: Iterable[Path]) -> Mapping[str, Path]:
    """The packages in folders, by the path that they are sent as."""
    found: dict[str, Path] = {}
    for folder in folders:
        own = [path for path in sorted(folder.iterdir()) if path.name.endswith(PACKAGES) and path.is_file()]
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
    return found


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
