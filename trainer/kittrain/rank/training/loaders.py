"""The loaders that a loop takes its batches from: their passes, positions, and warnings about them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from kittrain.rank.training.known_loader import KnownLoader, kind_of, matters
from kittrain.rank.training.loader_pass import LoaderPass, OnResize, is_exact
from kittrain.rank.training.loader_position import is_map_style
from kittrain.rank.training.resumed_place import Position, Resize
from kittrain.rank.training.sample_order import PositionError
from kittrain.rank.training.taken_ahead import TakenAheadError
from kittrain.rank.world.distributed import World

Positions = dict[str, list[Position]]


class Loaders:
    """The passes of an epoch. Not collective.

    A pass is saved if a step has taken its batches; others are evaluations, which a resumed loop begins anew. A saved
    pass is continued by the first pass over the same kind of loader, with as many such passes before it in the epoch.

    Args:
        world: of this rank.
        resumed: called when a resumed pass is at its position, before its next batch is loaded.
        ask: called before a batch of a pass is loaded.
        begin: called when a pass begins, with whether nothing was taken since the last step.
    """

    def __init__(
        self,
        world: World,
        resumed: Callable[[], None],
        ask: Callable[[LoaderPass], None] = lambda _: None,
        begin: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._world = world
        self._resumed = resumed
        self._ask = ask
        self._begin = begin
        self._known: dict[int, KnownLoader] = {}
        self._keys = Counter[str]()  # kinds of loaders that are known
        self._passed = Counter[str]()  # kinds of the passes of this epoch
        self._sampler_epochs: dict[int, int] = {}
        self._warned: set[int] = set()
        self._noted: set[str] = set()
        self._passes: list[tuple[tuple[str, int], LoaderPass]] = []
        self._saved: list[Position] = []
        self._others: Sequence[list[Position]] = ()
        self._idle: dict[tuple[str, int], Position] = {}  # of the snapshot, until its epoch ends
        self._ranks = world.size

    @property
    def first(self) -> LoaderPass | None:
        """The first pass of this epoch."""
        return self._passes[0][1] if self._passes else None

    def steps_of_epoch(self, done: int) -> int | None:
        """Estimates the steps of this epoch, of which some are done, by its first pass; None: unknown."""
        first = self.first
        return -(-first.whole * done // first.number) if first and first.whole and first.number else None

    @property
    def awaited(self) -> bool:
        """Whether the loop is going to ask for another batch of a pass that the last step was taken from."""
        return any(one.current and not one.ended for _, one in self._passes)

    @property
    def pending(self) -> bool:
        """Whether batches were taken since the last step, from passes that steps take their batches from."""
        return any(one.trained and one.pending for _, one in self._passes)

    def number(self, loader: Iterable[Any]) -> int:
        """The number of the last batch of a loader's newest pass, from 0 on."""
        return next(one.number - 1 for _, one in reversed(self._passes) if one.is_over(loader))

    @property
    def decided(self) -> bool:
        """Whether it is known of each pass that it is not taken ahead of its steps, as far as that can be known."""
        return all(one.steps.decided or one.ended for _, one in self._passes if one.trained)

    def end_step(self, backward: int = 0) -> None:
        """A step has taken the batches since the one before, with so many backward passes; 0: unknown.

        Batches of a pass that has ended meanwhile, while another has not, were an evaluation's.

        Raises:
            PositionError: the pass that the snapshot was taken in was not continued.
            TakenAheadError: the loop takes its batches before the step that precedes them.
        """
        for saved in self._saved:
            if saved.get("current"):
                raise PositionError(
                    f"the snapshot was taken within a pass over {saved['key'][0]}, and this loop took a step without "
                    "continuing it: pass the same loaders to Run.batches(), in the same order, or resume with the "
                    "script that wrote the snapshot"
                )
        passes = [one for _, one in self._passes]
        taken = [one for one in passes if one.pending]
        current = [one for one in taken if not one.ended] or [one for one in taken if one.learning]
        self._check_ahead(passes, current)
        for one in passes if current else ():
            one.current = one in current
            one.trained = one.trained or one.current
        for one in taken:
            note = one.end_step(backward if one in current else 0)
            if note and one in current and not one.skipped:
                self._note_once(note)

    def _check_ahead(self, passes: list[LoaderPass], current: list[LoaderPass]) -> None:
        """Check that no batch was taken ahead of its step: a resume would leave it out."""
        elsewhere = any(one.thread != threading.get_ident() for one in current)
        over = [] if current else [one for one in passes if one.current and one.exhausted]
        if elsewhere:
            raise TakenAheadError("in another thread")
        if any(one.steps.late for one in over):
            raise TakenAheadError("before the steps that precede them: this one took none")
        if over:
            self._note_once(
                "note: steps take no batches from Run.batches() any more; where the run is interrupted among them, "
                "they are begun anew, with the state that they had reached"
            )

    def restore(self, saved: Positions | list[Position], others: Sequence[Any] = (), *, ranks: int) -> None:
        """Let the next passes continue at saved positions.

        Args:
            saved: of this rank; a list if an earlier version saved it.
            others: of all ranks, if there is another number of them now.
            ranks: that saved them.
        """
        self._saved, idle = _split(saved)
        self._idle = {(one["key"][0], one["key"][1]): one for one in idle}
        self._others = [_split(one)[0] for one in others]
        self._ranks = ranks

    def positions(self) -> Positions:
        """Where the passes of this epoch are; those that have not started yet stay as restored."""
        passes = [{"key": key, **one.position()} for key, one in self._passes if one.trained]
        known = {one.key: one.state() for one in self._known.values()}
        return {"passes": passes + self._saved, "idle": [one for one in (self._idle | known).values() if matters(one)]}

    def end_epoch(self) -> None:
        """The next passes are those of a new epoch."""
        for (kind, _), one in self._passes:
            if one.trained and one.skipped and one.pending:
                self._note_once(
                    f"note: the resumed pass over {kind} ended with {one.pending} batches that no step followed. If "
                    "the loop counts its batches, take them from Run.enumerate(), whose numbers start at the position"
                )
        self._passes, self._saved, self._others = [], [], ()
        self._passed.clear()
        for known in self._known.values():
            known.resumed = True

    def batches(self, loader: Iterable[Any], epoch: int | None, resize: OnResize) -> Iterator[Any]:
        """The batches of a pass, or of one pass after another if there are no epochs."""
        return self.endless(loader, resize) if epoch is None else self.one_pass(loader, epoch, resize)

    def one_pass(self, loader: Iterable[Any], epoch: int, resize: OnResize = "exact") -> Iterator[Any]:
        """The batches of a pass, from the restored position on."""
        self._warn(loader)
        key, saved, others = self._claim(loader)
        one, known = self._new_pass(loader, epoch)
        self._passes.append((key, one))
        yield from self._batches(one, known, saved, others, resize)

    def endless(self, loader: Iterable[Any], resize: OnResize = "exact") -> Iterator[Any]:
        """The batches of one pass after another.

        Raises:
            ValueError: the loader is empty.
        """
        self._warn(loader)
        key, saved, others = self._claim(loader)
        number = len(self._passes)
        for epoch in count(saved["epoch"] if saved else 0):
            one, known = self._new_pass(loader, epoch)
            self._passes[number:] = [(key, one), *self._passes[number + 1 :]]
            yield from self._batches(one, known, saved, others, resize)
            if not one.taken and saved is None:
                raise ValueError("the loader has no batches, or is an iterator, which ends for good: pass a loader")
            saved = None

    def _claim(self, loader: Iterable[Any]) -> tuple[tuple[str, int], Position | None, list[Position]]:
        """The key of a new pass over a loader; its saved position, and those of all ranks if their number changed."""
        key = kind_of(loader, self._passed)
        for number, one in enumerate(self._saved):
            if tuple(one.get("key", key)) == key:
                others = [theirs[number] for theirs in self._others if number < len(theirs)]
                self._others = [theirs[:number] + theirs[number + 1 :] for theirs in self._others]
                return key, self._saved.pop(number), others
        return key, None, []

    def _new_pass(self, loader: Iterable[Any], epoch: int) -> tuple[LoaderPass, KnownLoader]:
        known = self._known.get(id(loader)) or KnownLoader(loader, kind_of(loader, self._keys))
        self._known[id(loader)] = known
        self._begin(not any(one.pending for _, one in self._passes))
        one = LoaderPass(
            loader,
            known.positioned,
            epoch=epoch,
            rank=self._world.rank,
            sampler_epochs=self._sampler_epochs,
            ask=self._ask,
        )
        return one, known

    def _batches(
        self, one: LoaderPass, known: KnownLoader, saved: Position | None, others: Sequence[Position], resize: OnResize
    ) -> Iterator[Any]:
        idle = self._restored_idle(known)
        running = known.running or bool(idle and idle["running"])
        known.iterated = True
        if saved is None:
            if idle:
                known.restore(idle)
            if running and known.positioned and not known.positioned.running and known.positioned.can_run:
                known.positioned.run()
            return one.begin(running=running)
        batches = one.resume(
            saved, Resize(before=self._ranks, now=self._world.size, others=others, share=resize == "share")
        )
        known.resumed = True
        self._resumed()
        self._restore_others()
        return batches

    def _restored_idle(self, known: KnownLoader) -> Position | None:
        """What the first pass over a loader starts from after a resume, if it was used before."""
        return self._idle.get(known.key) if not known.iterated else None

    def _restore_others(self) -> None:
        """Undo what evaluations before a resumed pass have drawn: they were done before the snapshot, too."""
        for known in self._known.values():
            if not known.resumed and known.key in self._idle:
                known.restore(self._idle[known.key])

    def note_untracked(self) -> None:
        """Note that the position within an epoch is unknown, if no pass has begun."""
        if not self._passes:
            self._note_once(
                "note: the batches do not come from Run.batches(), so a run that is interrupted within an epoch "
                "resumes at the beginning of that epoch, with the state that it had reached"
            )

    def _note_once(self, note: str) -> None:
        if note not in self._noted:
            self._noted.add(note)
            self._world.print(note)

    def _warn(self, loader: Iterable[Any]) -> None:
        if id(loader) in self._warned:
            return
        self._warned.add(id(loader))
        if not is_exact(loader):
            self._world.print(
                f"note: {type(loader).__name__} cannot tell its position: to resume within a pass, the batches before "
                "are read again and dropped, which is exact only if they are the same again. Use a map-style data "
                "set, or a loader with state_dict and load_state_dict, such as torchdata's StatefulDataLoader"
            )
        elif is_map_style(loader) and not getattr(loader, "in_order", True):
            self._world.print(
                "note: the loader's batches come in the sampler's order, in spite of in_order=False: in any other one, "
                "a resume could not tell which were taken"
            )


def _split(saved: Positions | list[Position]) -> tuple[list[Position], list[Position]]:
    """The passes, and the loaders between two passes; an earlier version saved a list of passes only."""
    return (list(saved), []) if isinstance(saved, list) else (list(saved["passes"]), list(saved["idle"]))
