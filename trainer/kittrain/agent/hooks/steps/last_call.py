"""Notes the collective that a rank of any script calls, before it is called: its number, its function and its tensors.

Only calls from Python, of groups that have all ranks, and while there are few in a step: each costs a microsecond,
or two if one rank sends to all or receives from all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from kittrain.system.calls import NO_CALL, Call
from kittrain.torch_private.early import COLLECTIVE, EQUAL

SHOWN: Final = 2  # tensors of a call
MOST: Final = 16  # calls for each step: with more, as of sharded models, none is noted
ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})  # methods of which one rank is the root
ENOUGH: Final = 64  # calls before the first step


class LastCall:
    """Numbers the calls of each group.

    Args:
        write: takes the call that begins.
        count: takes the number of one that is like the one before.
        steps: how many steps were taken so far.
    """

    def __init__(
        self, write: Callable[[Call], object], count: Callable[[int], object], steps: Callable[[], int]
    ) -> None:
        self._write, self._count, self._steps = write, count, steps
        # By name of the group, of those with all ranks; of others it is -1. A group that is kept would keep its
        # connections after it was destroyed, and ranks that wait in it would wait for ever.
        self._numbers: dict[str, int] = {}
        self._world = self._total = 0
        self._last: tuple[Any, ...] = ()
        self._noting = True

    def formed(self, size: int) -> None:
        """The ranks have formed a group of all: they count anew."""
        self._world = size
        self._numbers.clear()
        self._forget()

    def begins(self, group: Any, method: str, given: Sequence[Any]) -> bool:
        """A method of a group is called; returns whether to go on with that."""
        self._total += 1
        name: str = group.group_name
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = 0 if group.size() == self._world else -1
        if not self._total % ENOUGH and (steps := self._steps()):
            self._noting = self._noting and self._total <= MOST * steps + ENOUGH
        if number < 0 or not self._noting or not (method in EQUAL or method in COLLECTIVE):
            self._forget()
            return self._noting
        self._numbers[name] = number = number + 1
        first = given[0] if given else None
        one = first[0] if isinstance(first, list) and len(first) == 1 else None
        like = (name, method, _root(method, given), getattr(one, "shape", None), getattr(one, "dtype", None))
        if one is not None and like == self._last:
            self._count(number)
        else:
            self._last = like
            self._write(_call(name, method, given, number))
        return True

    def _forget(self) -> None:
        self._last = ()
        self._write(NO_CALL)


def _call(group: str, method: str, given: Sequence[Any], number: int) -> Call:
    tensors = [*_tensors(given)] if method in EQUAL else []
    return Call(
        number=number,
        group=zlib.crc32(group.encode()),
        size=sum(one.nbytes for one in tensors),
        name=EQUAL.get(method) or COLLECTIVE[method],
        tensor=", ".join(_words(one) for one in tensors[:SHOWN]),
        root=_root(method, given),
    )


def _root(method: str, given: Sequence[Any]) -> int:
    """The rank of the group that a call's options name; -1 without one."""
    return getattr(given[-1], "rootRank", -1) if method in ROOTED and given else -1


def _tensors(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for one in values:
        if isinstance(one, list | tuple):
            found += _tensors(one)
        elif hasattr(one, "nbytes"):
            found.append(one)
    return found


def _words(tensor: Any) -> str:
    """``[2, 3] float32``."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
