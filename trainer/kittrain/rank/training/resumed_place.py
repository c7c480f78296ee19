"""Where a pass over a loader continues after a restart, with the same or another number of ranks. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kittrain.rank.training.sample_order import Place, PositionError, draws_again, how_to_resize, ranks_of

Position = dict[str, Any]  # of a pass; plain values and tensors


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """Where a pass continues.

    Attributes:
        after: samples of the order that were taken; the others are divided among the ranks anew.
        skip: batches of this rank's part that were taken.
        ahead: batches of indices that come next, and had been drawn already.
        nothing_left: the pass was complete, and need not even be iterated.
    """

    after: int = 0
    skip: int = 0
    ahead: Sequence[Any] = ()
    nothing_left: bool = False


@dataclass(frozen=True, kw_only=True)
class Resize:
    """The number of ranks before and after a restart.

    Attributes:
        before: ranks that saved a position.
        now: ranks that continue.
        others: the positions of all that saved one, if their number has changed.
        share: continue after about the same share of the pass if it is not known what is left, instead of an error.
    """

    before: int
    now: int
    others: Sequence[Position] = field(default=())
    share: bool = False

    @property
    def resized(self) -> bool:
        """Whether there is another number of ranks."""
        return self.before != self.now


def resumed_place(saved: Position, now: Place, sampler: object, resize: Resize) -> Resumed:
    """Where a pass continues whose samples are known.

    Args:
        saved: this rank's position, or rank 0's if there were fewer ranks.
        now: where this rank would be at the start of the pass.
        sampler: of single samples.
        resize: of the ranks.

    Raises:
        PositionError: it is not known what is left.
    """
    was = Place(**saved["place"])
    alike = (now.ranks, now.batch) == (was.ranks, was.batch)
    if alike and (now.length == was.length or not resize.resized):
        return Resumed(after=was.start, skip=saved["taken"], ahead=saved.get("ahead", ()))
    if saved["complete"]:
        return Resumed(after=sys.maxsize)  # the sampler draws what it would have drawn
    if resize.resized:
        _check_sampler(was, now)
        if was.ranks == ranks_of(sampler) == 1 and now.length != was.length:
            return _share(was, now, given=resize.share or draws_again(sampler))
        _check_others([Place(**one["place"]) for one in resize.others], was)
    return Resumed(after=was.taken)


def resumed_elsewhere(saved: Mapping[str, Any], name: str, batches: int | None, resize: Resize) -> Resumed:
    """Where a pass continues whose samples are not known: after the same number of batches.

    With another number of ranks that is right only if the loader does not depend on it. Snapshots before this was
    recorded continue after the same share, in batches.

    Args:
        saved: the pass's position.
        name: of the loader's class.
        batches: in a pass now, if known.
        resize: of the ranks.

    Raises:
        PositionError: it is not known what is left.
    """
    taken: int = saved["taken"]
    if not resize.resized or (batches is not None and batches == saved.get("batches")):
        return Resumed(skip=taken, ahead=saved.get("ahead", ()))
    if saved.get("complete"):
        return Resumed(skip=taken, nothing_left=True)
    if "batches" in saved and not resize.share:
        raise PositionError(
            f"with another number of ranks, it is not known which of this rank's samples {name} had given before: "
            f"{how_to_resize()}"
        )
    return Resumed(skip=taken * resize.before // resize.now)


def _check_sampler(was: Place, now: Place) -> None:
    if was.sampler != now.sampler:
        raise PositionError(
            f"the order of the samples was that of {was.sampler}, and is that of {now.sampler} with another number of "
            "ranks, so it is not known which are left: use the same sampler for any number of ranks, also for one"
        )


def _check_others(others: Sequence[Place], was: Place) -> None:
    """Only if all ranks have taken equally many, what they took is the beginning of the order."""
    if was.ranks > 1 and any(one.taken != was.taken for one in others):
        taken = ", ".join(str(one.samples) for one in others)
        raise PositionError(
            f"the ranks had taken different numbers of samples from their {was.sampler} ({taken}), so what is left "
            f"cannot be divided among another number of ranks: {how_to_resize()}"
        )


def _share(was: Place, now: Place, *, given: bool) -> Resumed:
    """After the same share of a pass that differs with the number of ranks."""
    if not given or not was.length or now.length is None:
        raise PositionError(
            f"with another number of ranks, this rank's {now.sampler} gives {now.length} samples in a pass, not "
            f"{was.length}, and it is not known which of them were taken: {how_to_resize()}"
        )
    return Resumed(after=was.taken * now.length // was.length)
