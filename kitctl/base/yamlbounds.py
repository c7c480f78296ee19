"""Limit the depth and the size of a YAML document before it is composed.

PyYAML's composer recurses once per level: with a libyaml before 0.2.6, which stops at a thousand, it crashes at some
ten thousand. No library limits aliases: one that contains itself never ends, and aliases of aliases fill the memory. So
the events are checked first, one by one. Tags are refused: they call constructors that readers do not share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

DEPTH_LIMIT: Final = 32
SIZE_LIMIT: Final = 100_000  # values, with aliases expanded

_TOO_DEEP: Final = f"nested more than {DEPTH_LIMIT} deep"


@dataclass
class Bounds:
    """The depth of a document, and its size with aliases expanded; consumes its events in order."""

    size: int = 0
    _open: list[tuple[str | None, int]] = field(default_factory=list)  # anchor, and the size at its start
    _sizes: dict[str, int] = field(default_factory=dict)  # by anchor

    def check(self, event: Any) -> None:
        """Check the next event.

        Raises:
            yaml.MarkedYAMLError: the document is too deep or too large, or has a tag.
        """
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, self.size))
            self.size += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = self._open.pop()
            self._record(anchor, self.size - start)
        elif isinstance(event, yaml.ScalarEvent):
            self.size += 1
            self._record(event.anchor, 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in self._open}:
                raise _refused(event, f"the alias {event.anchor} contains itself")
            self.size += self._sizes.get(event.anchor or "", 1)
        if len(self._open) > DEPTH_LIMIT:
            raise _refused(event, _TOO_DEEP)
        if self.size > SIZE_LIMIT:
            raise _refused(event, f"more than {SIZE_LIMIT} values")
        if getattr(event, "tag", None) is not None:
            raise _refused(event, f"tags are not allowed, as in {event.tag}")

    def _record(self, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = size


def problem_of(error: yaml.YAMLError) -> str:
    """What is wrong with a document, in one line."""
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    # libyaml reads ahead, and newer versions have a limit of their own, far above this one
    return _TOO_DEEP if "maximum nesting depth" in problem else problem


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
