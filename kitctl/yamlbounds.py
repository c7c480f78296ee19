"""What a YAML reader must not be given: text that nests, or grows by its aliases, beyond what any job file needs.

libyaml's composer calls itself for each level, and dies of a few ten thousand; an alias of what it stands in never
ends, and aliases of aliases fill the memory. So a file's events, which are read one by one, are looked at first. Tags
are refused: they call constructors that readers do not share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

DEPTH_LIMIT: Final = 32
SIZE_LIMIT: Final = 100_000  # values, with those that aliases repeat


@dataclass
class Bounds:
    """How deep a document is, and how large with its aliases written out; takes its events in their order."""

    size: int = 0
    _open: list[tuple[str | None, int]] = field(default_factory=list)  # anchor, and the size where it began
    _sizes: dict[str, int] = field(default_factory=dict)  # by anchor

    def take(self, event: Any) -> None:
        """Look at the next event.

        Raises:
            yaml.MarkedYAMLError: the document cannot be a job file.
        """
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, self.size))
            self.size += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = self._open.pop()
            self._name(anchor, self.size - start)
        elif isinstance(event, yaml.ScalarEvent):
            self.size += 1
            self._name(event.anchor, 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in self._open}:
                raise _refused(event, f"the alias {event.anchor} contains itself")
            self.size += self._sizes.get(event.anchor or "", 1)
        if len(self._open) > DEPTH_LIMIT:
            raise _refused(event, f"nested more than {DEPTH_LIMIT} deep")
        if self.size > SIZE_LIMIT:
            raise _refused(event, f"more than {SIZE_LIMIT} values")
        if getattr(event, "tag", None) is not None:
            raise _refused(event, f"tags are not read, as in {event.tag}")

    def _name(self, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = size


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
