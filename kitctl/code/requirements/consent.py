"""What of this machine a job's requirements may send: what the user names, and what lies in the project's folder.

A requirements file often comes from someone else. What its lines name (``-r``, ``-c``, ``--find-links``), and where
links lead, must therefore be in the project and not be hidden; nothing else is sent unless the user names it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePath
from typing import Final

from kitctl.base.errors import SpecError
from kitctl.base.quantity import format_bytes
from kitctl.base.user_folders import home
from kitctl.code.requirements.lines import FIELD
from kitctl.code.workdir.patterns import wrong

TEXT_LIMIT: Final = 1 << 20  # bytes of a requirements file


def project(file: Path, folder: Path) -> Path:
    """The folder whose files a requirements file may name.

    It is the one that the job is submitted from, if the file is in it; a home folder is no project, so there, as
    anywhere else, it is the file's own.
    """
    whole = not home().is_relative_to(_written(folder))
    return folder if whole and _lies_in(file, folder) else file.parent


def require_own_link(path: Path, folder: Path, field: str) -> None:
    """Check a path that the user names: one in ``folder`` must not be a link that leads out of it.

    Raises:
        SpecError: it is; a link may come from someone else, with the rest of the folder.
    """
    if _lies_in(path, folder) and not _really_in(path, folder):
        real = path.resolve()
        raise wrong(field, f"{path} is a link to {real}, outside of {folder}", f"name it as {real}")


def require_in_project(path: Path, project: Path, field: str, fix: str) -> None:
    """Check a path that a line of a requirements file names.

    Raises:
        SpecError: it, or what it leads to, is outside of the project, or hidden.
    """
    if not (_lies_in(path, project) and _really_in(path, project)):
        raise wrong(field, f"{path} is outside of {project}, and only a line of a file names it", fix)
    shown = _written(path).relative_to(_written(project))
    real = path.resolve().relative_to(project.resolve())
    if any(part.startswith(".") for part in (*shown.parts, *real.parts)):
        raise wrong(field, f"{path} is hidden, and only a line of a file names it", fix)


def require_in_folder(path: Path, folder: Path, field: str) -> None:
    """Check a file of a folder that is sent.

    Raises:
        SpecError: it is a link that leads out of the folder.
    """
    if not _really_in(path, folder):
        what = f"{path} is a link to {path.resolve()}, outside of {folder}"
        raise wrong(field, what, "copy what it leads to, or remove the link")


def read_text(path: PurePath) -> str:
    """The text of a requirements file.

    Raises:
        SpecError: it does not exist, or is no text file of a sensible size.
    """
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise wrong(FIELD, f"{path} is not a file", "name a file with a requirement on each line")
        if found.st_size > TEXT_LIMIT:
            raise _too_large(path)
        with Path(path).open("rb") as file:
            content = file.read(TEXT_LIMIT + 1)
        if len(content) > TEXT_LIMIT:  # a file of /proc, for example, has no size
            raise _too_large(path)
        if b"\0" in content:
            raise wrong(FIELD, f"{path} cannot be read: it is binary", "give a text file in UTF-8")
        return content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise wrong(FIELD, f"{path} does not exist", "give a path from the folder that you submit from") from error
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(FIELD, f"{path} cannot be read: {error}", "give a text file in UTF-8") from error


def _too_large(path: PurePath) -> SpecError:
    what = f"{path} has more than {format_bytes(TEXT_LIMIT)}"
    return wrong(FIELD, what, "name a file with a requirement on each line")


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether a path is below a folder as it is written, wherever links lead."""
    return _written(path).is_relative_to(_written(folder))


def _really_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _written(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
