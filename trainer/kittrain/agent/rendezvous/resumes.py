"""Whether the ranks of all nodes have resumed from the same files, for scripts with a loop of their own. Pure.

Only files in nodes' own folders are in question: what all nodes see, a rank leaves out on purpose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

SAME_SECONDS: Final = 5.0  # between the ages of files that ranks of several nodes saved at the same step
UNLESS: Final = "unless the script sends one rank's state to all"
MOST: Final = 8  # different ones that are sent on


@dataclass(frozen=True, kw_only=True)
class Resume:
    """What the ranks of a node have loaded before they trained.

    Attributes:
        node: index of the node.
        name: of the newest file, relative to the working folder; empty: none.
        digest: equal for equal files.
        private: whether only this node has it.
        age: seconds since it was written.
    """

    node: Annotated[int, lambda number: number >= 0]
    name: str = ""
    digest: int = 0
    private: bool = False
    age: Annotated[float, math.isfinite] = 0.0


def distinct(resumes: Iterable[Resume]) -> list[Resume]:
    """One for each file, by node; few, however many nodes there are."""
    found: dict[int, Resume] = {}
    for resume in sorted(resumes, key=lambda one: one.node):
        found.setdefault(resume.digest, resume)
    return [*found.values()][:MOST]


def difference(resumes: Sequence[Resume]) -> str:
    """That nodes train from different states, in a sentence; empty if they do not, or it cannot be told."""
    first, *others = resumes or [Resume(node=0)]
    other = next((one for one in others if _differ(first, one)), None)
    if other is None:
        return ""
    found = f"node {first.node} resumed from {_name(first)}, node {other.node} from {_name(other)}"
    return f"{found}: {UNLESS}, ranks train from different states; save to a folder that all nodes share: --outputs DIR"


def _name(resume: Resume) -> str:
    return resume.name or "nothing"


def _differ(one: Resume, other: Resume) -> bool:
    if one.digest == other.digest or not (one.private or other.private):
        return False
    if not (one.name and other.name) or _pattern(one.name) != _pattern(other.name):
        return True
    return abs(one.age - other.age) > SAME_SECONDS


def _pattern(name: str) -> str:
    """A name without its numbers: each rank's own file of one checkpoint has the same."""
    return re.sub(r"\d+", "#", name)
