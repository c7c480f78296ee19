"""The data sets of a loader: its own, and those within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

DEPTH: Final = 4  # data sets within each other, such as a Subset's


def nested(dataset: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A data set and those in it, each with its attributes."""
    for _ in range(DEPTH):
        held = getattr(dataset, "__dict__", {})
        yield dataset, held
        dataset = held.get("dataset")
