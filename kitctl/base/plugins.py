"""Extensions of kitctl by other distributions, via entry points: targets and kinds of jobs.

``importlib.metadata`` takes a tenth of a command's time to import and to read them, so it is asked only where a
distribution has some.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kitctl.base.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS: Final = "kitctl.kinds"
TARGETS: Final = "kitctl.targets"


def names(group: str) -> list[str]:
    """The names of a group's entry points."""
    return sorted({point.name for point in _points(group)})


def load_all(group: str) -> Iterator[Any]:
    """What a group's entry points stand for.

    Raises:
        UsageError: one of them cannot be imported.
    """
    return map(_load, _points(group))


def load(group: str, name: str) -> Any:
    """What one entry point stands for; None if there is none of that name.

    Raises:
        UsageError: it cannot be imported.
    """
    return next((_load(point) for point in _points(group) if point.name == name), None)


def _points(group: str) -> Iterator[EntryPoint]:
    if not any(_may_have(folder, group.encode()) for folder in sys.path):
        return iter(())
    from importlib.metadata import entry_points  # noqa: PLC0415 - few commands need it

    return iter(entry_points(group=group))


def _may_have(folder: str, group: bytes) -> bool:
    """Whether a distribution in a folder of the path has such entry points; True of what is no folder: an archive."""
    try:
        found = [one for one in Path(folder).iterdir() if one.suffix in {".dist-info", ".egg-info"}]
    except NotADirectoryError:
        return True
    except OSError:
        return False
    for one in found:
        with suppress(OSError):
            if group in (one / "entry_points.txt").read_bytes():
                return True
    return False


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        source = point.dist.name if point.dist else "its distribution"
        what = f"the entry point {point.name} = {point.value} of {source} cannot be imported: {error}"
        raise UsageError(what, fix=f"repair or uninstall {source}") from error
