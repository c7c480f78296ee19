"""Tells of a module that is not found although the script's folder has it: Python looks next to the script only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCES: Final = "src"  # where many projects keep their packages
IS_IN: Final = " (it is in {folder}, which is not in sys.path)"


def tell_own(error: BaseException) -> None:
    """Add the folder, relative to the working folder, to what such an error says."""
    if not (
        isinstance(error, ModuleNotFoundError) and error.name and error.args == (f"No module named {error.name!r}",)
    ):
        return
    top = error.name.partition(".")[0]
    if folder := next((one for one in _folders() if _has(one, top)), None):
        error.msg = f"{error.msg}{IS_IN.format(folder=folder)}"
        error.args = (error.msg,)


def _folders() -> Iterator[Path]:
    yield from (Path(), Path(SOURCES))


def _has(folder: Path, name: str) -> bool:
    """Whether a folder has the module, or a package with a module in it: folders of data are none."""
    return (folder / f"{name}.py").is_file() or any((folder / name).glob("*.py"))
