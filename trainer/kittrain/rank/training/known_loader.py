"""A loader that a loop has used: how it is found again after a restart, and what its next pass starts from."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kittrain.rank.snapshots.state.state import has_state
from kittrain.rank.training.loader_pass import length_of, stateful_part
from kittrain.rank.training.loader_position import PositionedLoader, generators, is_map_style, samplers
from kittrain.rank.training.resumed_place import Position


class KnownLoader:
    """A loader that the loop has used.

    Args:
        loader: it is kept, so that its id is unique.
        key: see ``kind_of``.

    Attributes:
        iterated: whether a pass has begun.
        resumed: whether one was resumed.
    """

    def __init__(self, loader: Any, key: tuple[str, int]) -> None:
        self.loader = loader
        self.key = key
        self.positioned = PositionedLoader(loader) if is_map_style(loader) and stateful_part(loader) is None else None
        self.iterated = self.resumed = False

    @property
    def running(self) -> bool:
        """Whether workers are running that stay for the next pass."""
        if self.positioned:
            return self.positioned.running
        return self.iterated and bool(getattr(self.loader, "persistent_workers", False))

    def state(self) -> Position:
        """What the next pass starts from."""
        return {
            "key": self.key,
            "running": self.running,
            "generators": [one.get_state() for one in generators(self.loader)],
            "samplers": [one.state_dict() for one in samplers(self.loader) if has_state(one)],
        }

    def restore(self, saved: Position) -> None:
        """Let the next pass start from there."""
        for generator, state in zip(generators(self.loader), saved["generators"], strict=False):
            generator.set_state(state)
        stateful = [one for one in samplers(self.loader) if has_state(one)]
        for sampler, state in zip(stateful, saved["samplers"], strict=False):
            sampler.load_state_dict(state)


def kind_of(loader: Any, counter: Counter[str]) -> tuple[str, int]:
    """A loader's kind, and how many of that kind came before it.

    The kind depends neither on the number of ranks nor on the batch size.
    """
    dataset = getattr(loader, "dataset", None)
    kind = type(loader).__name__
    if dataset is not None:
        length = length_of(dataset) if is_map_style(loader) else None
        kind += f" of {type(dataset).__name__}" + ("" if length is None else f" with {length} samples")
    counter[kind] += 1
    return kind, counter[kind] - 1


def matters(idle: Position) -> bool:
    """Whether a loader's next pass starts from anything."""
    return bool(idle["running"] or idle["generators"] or idle["samplers"])
