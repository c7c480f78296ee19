"""What lies in a folder of snapshots, whatever state it is in: for a person who looks at it. Needs no torch.

Nothing is passed over or put aside here; a run that wants to go on asks ``archive``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kittrain.snapshots import snapshot
from kittrain.snapshots.listing import Named, listing
from kittrain.snapshots.shards import CorruptError
from kittrain.snapshots.snapshot import MODEL, ForeignError, Manifest

Condition = Literal[
    "whole",  # its manifest holds and its files are there; their bytes were not looked at
    "verified",  # every byte is as it was written
    "damaged",
    "foreign",  # of another version of the format
    "unreadable",  # the file system does not give it at the moment
    "unfinished",  # being written now, or left by a writer that was killed
]
GOOD: Final = frozenset({"whole", "verified"})


class CatalogueError(Exception):
    """There is no such snapshot, or it must not be dropped; says why."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One folder among the snapshots.

    Attributes:
        reason: what is wrong with it; empty where nothing is.
        size: of all its files, in bytes.
        manifest: None where it cannot be trusted.
    """

    path: Path
    step: int
    generation: int
    condition: Condition
    reason: str = ""
    size: int = 0
    manifest: Manifest | None = None

    @property
    def good(self) -> bool:
        """Whether a run may go on from it, as far as was looked."""
        return self.condition in GOOD


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter or a buffer of the model; ``size`` is in bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int


def everything(folder: Path, *, thorough: bool = False) -> list[Kept]:
    """All snapshots, the newest first: by generation and step, as a run would look for one to go on from.

    Args:
        folder: may be absent.
        thorough: read and verify every byte.

    Raises:
        OSError: the folder cannot be listed at the moment.
    """
    look = snapshot.verify if thorough else _whole
    kept = [_kept(one, look) for one in listing(folder)]
    return [one for one in kept if one.condition != "unreadable" or not _gone(one.path)]


def pick(kept: Sequence[Kept], wanted: str | None) -> Kept:
    """The snapshot of a step, or of that name; the newest good one where nobody says which.

    Of several of one step it is a good one, if there is any.

    Raises:
        CatalogueError: there is none.
    """
    candidates = [one for one in kept if (one.good if wanted is None else _is(one, wanted))]
    if candidates:
        return max(candidates, key=lambda one: one.good)  # the first of them
    what = "no snapshot" if wanted is None else f"no snapshot {wanted!r}"
    there = ", ".join(str(one.step) for one in kept if one.good) or "none"
    raise CatalogueError(f"{what} that could be used; steps with one: {there}")


def parameters(kept: Kept, manifest: Manifest) -> list[Parameter]:
    """What the model holds, as the shards' tails tell; their data are not read.

    Raises:
        CorruptError: a shard is missing, or its size or its tail differs.
        OSError: one cannot be read at the moment.
    """
    opened = snapshot.open_shards(kept.path, manifest)
    pieces = [piece for shard in opened for piece in shard.pieces if piece.tensor.startswith(MODEL)]
    sizes = Counter[str]()
    for piece in pieces:  # boxes that do not overlap
        sizes[piece.tensor] += piece.stop - piece.start
    return [
        Parameter(name=name.removeprefix(MODEL), shape=piece.shape, dtype=piece.dtype, size=sizes[name])
        for name, piece in {piece.tensor: piece for piece in pieces}.items()
    ]


def superfluous(kept: Sequence[Kept], keep: int, *, damaged: bool = False) -> list[Kept]:
    """What may go: snapshots beyond the ``keep`` newest that verify, and with ``damaged`` those that are put aside.

    What is unfinished may be being written, and what cannot be read now may be good: both stay.

    Raises:
        CatalogueError: not even one would be kept.
    """
    if keep < 1:
        raise CatalogueError(f"keep {keep}: at least the newest good snapshot stays")
    good = [one for one in kept if one.good]
    proven = [one for one in good if one.condition == "verified"][:keep]
    older = good[good.index(proven[-1]) + 1 :] if len(proven) == keep else []
    return older + [one for one in kept if damaged and one.condition == "damaged"]


def drop(kept: Sequence[Kept], wanted: Collection[str], *, keep: int, damaged: bool) -> list[Kept]:
    """Delete those of that name; the ``keep`` newest that verify are never among them.

    Raises:
        CatalogueError: one of them has to stay; none was deleted.
        OSError: one cannot be deleted.
    """
    allowed = {one.path.name: one for one in superfluous(kept, keep, damaged=damaged)}
    if staying := sorted(set(wanted) - allowed.keys()):
        raise CatalogueError(f"{', '.join(staying)} must stay: the {keep} newest good snapshots do")
    for name in wanted:
        path = allowed[name].path
        scratch = path.with_name(f"{snapshot.SCRATCH}{name}-dropped")
        path.rename(scratch)  # at once no run sees half of it
        shutil.rmtree(scratch)
    return [allowed[name] for name in wanted]


def _kept(named: Named, look: Callable[[Path], Manifest]) -> Kept:
    condition, reason, manifest = _look(named, look)
    return Kept(
        path=named.path,
        step=named.step,
        generation=named.generation,
        condition=condition,
        reason=reason,
        size=_size(named.path),
        manifest=manifest,
    )


def _gone(path: Path) -> bool:
    """Whether a run has dropped it, or put it aside, since it was listed."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _size(path: Path) -> int:
    """As far as the file system gives it: a run may be dropping the folder meanwhile."""
    size = 0
    with suppress(OSError):
        for file in path.iterdir():
            size += file.stat().st_size
    return size


def _whole(path: Path) -> Manifest:
    """A snapshot's manifest, if its shards are there at their size. Raises as ``snapshot.verify`` does."""
    manifest = snapshot.read_manifest(path)
    for _ in snapshot.open_shards(path, manifest):
        pass
    return manifest


def _look(named: Named, look: Callable[[Path], Manifest]) -> tuple[Condition, str, Manifest | None]:
    if not (named.published or named.aside):
        return "unfinished", "being written, or left by a writer that was killed", None
    try:
        manifest = look(named.path)
    except CorruptError as error:
        return "damaged", str(error), None
    except ForeignError as error:
        return "foreign", str(error), None
    except OSError as error:
        return "unreadable", str(error), None
    if named.aside:
        return "damaged", "put aside by a run that could not go on from it", manifest
    return ("whole" if look is _whole else "verified"), "", manifest


def _is(kept: Kept, wanted: str) -> bool:
    return kept.path.name == wanted or (wanted.isdecimal() and kept.step == int(wanted))
