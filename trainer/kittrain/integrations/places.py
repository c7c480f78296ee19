"""The place of each Trainer of a script in the job's snapshot folder, the same one after a restart.

A script may have several Trainers, one for each fold of a cross-validation for example. What tells them apart is the
folder that the script gave each, and their order.

Why: decision 49.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from kittrain.system import files

FILE: Final = "kit-trainer.json"  # in a place: its record


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a place holds.

    Attributes:
        name: the folder that the script gave its Trainer.
        nth: which of the script's Trainers of this name it is, from 1 on.
        result: of its training, in JSON's types; None: it has not ended.
    """

    name: str
    nth: int
    result: dict[str, Any] | None = None

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The record of a place; None: it has none, as those of the version before."""
        try:
            found = json.loads((folder / FILE).read_bytes())
            return cls(name=str(found["name"]), nth=int(found["nth"]), result=found["result"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Replace the record of a place.

        Raises:
            OSError: it cannot be written.
        """
        files.make_folder(folder)
        files.replace(folder / FILE, json.dumps(asdict(self)).encode())


@dataclass(frozen=True, kw_only=True)
class Place:
    """A Trainer's place.

    Attributes:
        folder: of its checkpoints.
        record: as it has to be once training begins.
    """

    folder: Path
    record: Record

    def nth_call(self, number: int) -> Place:
        """The place of the Trainer's training number ``number``, from 1 on: each has checkpoints of its own."""
        if number == 1:
            return self
        return replace(self, folder=self.folder / f"training-{number}")

    def begin(self) -> None:
        """Training begins, or is resumed: claim the place. The result of a training that has ended stays."""
        before = Record.read(self.folder)
        if before is None or (before.name, before.nth) != (self.record.name, self.record.nth):
            self.record.write(self.folder)

    def end(self, result: Mapping[str, Any]) -> None:
        """Training has ended: keep its result, for a restart after it."""
        replace(self.record, result=dict(result)).write(self.folder)

    @property
    def result(self) -> dict[str, Any] | None:
        """Of the training that has ended here; None: it has not."""
        found = Record.read(self.folder)
        return found.result if found else None


_TAKEN: Final[dict[Path, list[tuple[int, str]]]] = {}  # by root: number and name of each Trainer of this process


def take(root: Path, name: str) -> Place:
    """The place of the script's next Trainer. Nothing is written before it trains.

    Args:
        root: the first place; the others are next to it.
        name: the folder that the script gives the Trainer.
    """
    taken = _TAKEN.setdefault(root, [])
    nth = 1 + sum(other == name for _, other in taken)
    number = choose(name, nth, _records(root), [number for number, _ in taken])
    taken.append((number, name))
    return Place(folder=_folder(root, number), record=Record(name=name, nth=nth))


def choose(name: str, nth: int, records: Mapping[int, Record | None], taken: list[int]) -> int:
    """The number of a place for a Trainer.

    It is the one that recorded the Trainer's name; else the one of its order, unless that holds the finished training
    of another name: a name may have a date in it, and a script may leave out what it has finished.

    Args:
        name: of the Trainer.
        nth: of those with this name.
        records: of the places that exist, by their numbers; None: it has no record.
        taken: numbers of this process's earlier Trainers.
    """
    for number, record in records.items():
        if record and (record.name, record.nth) == (name, nth) and number not in taken:
            return number
    order = len(taken) + 1
    at_order = records.get(order)
    if order not in taken and (at_order is None or at_order.result is None):
        return order
    return next(number for number in range(1, len(records) + order + 1) if number not in {*taken, *records})


def forget() -> None:
    """Begin as a new process of the script does."""
    _TAKEN.clear()


def _folder(root: Path, number: int) -> Path:
    return root if number == 1 else root.with_name(f"{root.name}-{number}")


def _records(root: Path) -> dict[int, Record | None]:
    """The records of the places that exist, in their order."""
    pattern = re.compile(rf"{re.escape(root.name)}(?:-(\d+))?")
    entries = sorted(root.parent.iterdir()) if root.parent.is_dir() else []
    found = [(int(match[1] or 1), one) for one in entries if (match := pattern.fullmatch(one.name)) and one.is_dir()]
    return {number: Record.read(one) for number, one in sorted(found)}
