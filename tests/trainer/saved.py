"""Snapshots for tests, made without training."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from trainer.env import RankEnv
from trainer.snapshots import shards, snapshot
from trainer.snapshots.archive import Archive
from trainer.snapshots.ledger import extend
from trainer.snapshots.retention import Retention
from trainer.snapshots.shards import Piece
from trainer.snapshots.snapshot import Manifest
from trainer.world.order import Cursor, Order

ORDER = Order(samples=10, batch=4)
DATA = (bytes(range(256)) * 16, b"weights" * 1000)  # of two shards, of 5 and 7 chunks
PIECES = tuple(
    Piece(tensor="weights", dtype="uint8", shape=(11096,), offsets=(at,), sizes=(size,), start=0, stop=size)
    for at, size in ((0, 4096), (4096, 7000))
)
EXTRAS = {"rng": b"dice"}


def manifest(steps: int = 3, generation: int = 1, **changes: Any) -> Manifest:
    """A manifest with a ledger that holds."""
    cursor = [Cursor(), *(ORDER.after(span) for span in ORDER.spans(Cursor(), 10))][steps]
    facts: dict[str, Any] = {
        "job": "a-job",
        "run": "run-1",
        "generation": generation,
        "step": steps,
        "cursor": cursor,
        "world_size": 2,
        "seed": 0,
        "model": "a model",
        "optimizer": "SGD",
        "data": ORDER.fingerprint,
        "samples": ORDER.samples,
        "batch": ORDER.batch,
        "torch": "2.15",
        "created": 1000.0 + steps,
        "parent": None,
        "ledger": extend((), ORDER, generation, Cursor(), cursor, world_size=2),
    }
    return Manifest(**facts | changes)


def in_memory(data: bytes) -> memoryview:
    """As a rank holds its part of the state: on pages of its own, which a disk can read."""
    pages = mmap.mmap(-1, len(data))
    pages[:] = data
    return memoryview(pages)


def write_shards(folder: Path, described: Manifest) -> tuple[Path, Manifest]:
    """What the ranks do for a snapshot: the folder that waits to be published, and the manifest with its shards."""
    scratch = folder / f"{snapshot.SCRATCH}{described.name}"
    scratch.mkdir()
    with patch("trainer.snapshots.shards.CHUNK", 1000):
        written = [
            shards.write(scratch / shards.name(number), in_memory(data), [piece], EXTRAS)
            for number, (data, piece) in enumerate(zip(DATA, PIECES, strict=True))
        ]
    return scratch, replace(described, shards=tuple(written))


def save(folder: Path, described: Manifest) -> Manifest:
    """A snapshot beside the archive's rules."""
    scratch, described = write_shards(folder, described)
    snapshot.seal(scratch, described)
    snapshot.publish(scratch, folder / described.name)
    return described


def publish(saved: Archive, folder: Path, described: Manifest) -> None:
    """A snapshot by the archive's rules."""
    scratch, described = write_shards(folder, described)
    saved.publish(described, scratch)
    saved.thin_out()


def archive(folder: Path, say: Callable[[str], None] = print, *, keep: int = 3) -> Archive:
    """The archive that those manifests belong to."""
    kept = Retention(RankEnv(snapshot_keep=keep))
    return Archive(folder, run="run-1", model="a model", optimizer="SGD", order=ORDER, keep=kept, say=say)


def newest(folder: Path, say: Callable[[str], None] = print, *, resume: bool = False) -> Manifest | None:
    """What a run would go on from."""
    found = archive(folder, say)
    for offer in found.offers(resume=resume):
        try:
            return snapshot.verify(found.path(offer))
        except (shards.CorruptError, OSError) as error:
            found.pass_over(offer, error)
    return None
