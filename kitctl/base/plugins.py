"""Extensions of kitctl by other distributions, via entry points: targets and kinds of jobs.

Looking them up reads the metadata of every installed distribution, so it is done only when a built-in one does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    from importlib.metadata import entry_points  # noqa: PLC0415 - few commands need it

    return iter(entry_points(group=group))


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        source = point.dist.name if point.dist else "its distribution"
        what = f"the entry point {point.name} = {point.value} of {source} cannot be imported: {error}"
        raise UsageError(what, fix=f"repair or uninstall {source}") from error
