"""The loaders that a loop takes its batches from: their passes, positions, and warnings about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from kittrain.training.loader_pass import LoaderPass, Position, is_exact, stateful_part
from kittrain.training.loader_position import PositionedLoader, is_map_style
from kittrain.world.distributed import World


class Loaders:
    """The passes of an epoch, in the order in which the loop begins them. Not collective.

    Args:
        world: of this rank.
        resumed: called when a resumed pass is at its position, before its next batch is loaded.
    """

    def __init__(self, world: World, resumed: Callable[[], None]) -> None:
        self._world = world
        self._resumed = resumed
        self._positioned: dict[int, tuple[Any, PositionedLoader]] = {}  # with the original, so that its id is unique
        self._sampler_epochs: dict[int, int] = {}
        self._warned: set[int] = set()
        self._passes: list[LoaderPass] = []
        self._saved: list[Position] = []
        self._ranks = world.size

    @property
    def taken(self) -> int:
        """Batches of the first loader's pass that were taken, including those before a restart."""
        return self._passes[0].taken if self._passes else 0

    @property
    def length(self) -> int | None:
        """Batches of that pass in all, if known."""
        return self._passes[0].length if self._passes else None

    @property
    def started(self) -> bool:
        """Whether a pass of this epoch has started."""
        return bool(self._passes)

    def restore(self, saved: list[Position], *, ranks: int) -> None:
        """Let the next passes continue at saved positions, which ``ranks`` ranks had."""
        self._saved, self._ranks = list(saved), ranks

    def positions(self) -> list[Position]:
        """Where the passes of this epoch are; those that have not started yet stay as restored."""
        return [one.position() for one in self._passes] + self._saved

    def end_epoch(self) -> None:
        """The next passes are those of a new epoch."""
        self._passes, self._saved = [], []

    def one_pass(self, loader: Iterable[Any], epoch: int) -> Iterator[Any]:
        """The batches of a pass, from the restored position on."""
        self._warn(loader)
        number = len(self._passes)
        saved = self._saved.pop(0) if self._saved else None
        self._passes.append(self._new_pass(loader, epoch))
        yield from self._batches(self._passes[number], saved)

    def endless(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of one pass after another.

        Raises:
            ValueError: the loader is empty.
        """
        self._warn(loader)
        number = len(self._passes)
        saved = self._saved.pop(0) if self._saved else None
        self._passes.append(self._new_pass(loader, 0))
        for epoch in count(saved["epoch"] if saved else 0):
            self._passes[number] = self._new_pass(loader, epoch)
            yield from self._batches(self._passes[number], saved)
            saved = None
            if not self._passes[number].taken:
                raise ValueError("the loader has no batches, or is an iterator, which ends for good: pass a loader")

    def _new_pass(self, loader: Iterable[Any], epoch: int) -> LoaderPass:
        positioned = None
        if is_map_style(loader) and stateful_part(loader) is None:
            known = self._positioned.get(id(loader)) or (loader, PositionedLoader(loader))  # type: ignore[arg-type]
            self._positioned[id(loader)] = known
            positioned = known[1]
        return LoaderPass(loader, positioned, epoch=epoch, rank=self._world.rank, sampler_epochs=self._sampler_epochs)

    def _batches(self, one: LoaderPass, saved: Position | None) -> Iterator[Any]:
        if saved is None:
            return one.begin()
        batches = one.resume(saved, taken=saved["taken"] * self._ranks // self._world.size)
        self._resumed()
        return batches

    def _warn(self, loader: Iterable[Any]) -> None:
        if not is_exact(loader) and id(loader) not in self._warned:
            self._warned.add(id(loader))
            self._world.print(
                f"note: {type(loader).__name__} cannot tell its position: to resume within a pass, the batches before "
                "are read again and dropped, which is exact only if they are the same again. Use a map-style data "
                "set, or a loader with state_dict and load_state_dict, such as torchdata's StatefulDataLoader"
            )
