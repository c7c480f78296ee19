"""Creates snapshots for tests, without training."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from kittrain.env import RankEnv
from kittrain.job_spec import Resume
from kittrain.snapshots import modelfile, shards, snapshot, weights
from kittrain.snapshots.archive import Archive
from kittrain.snapshots.candidates import Candidates
from kittrain.snapshots.fitting import Identity
from kittrain.snapshots.ledger import Ledger, extend
from kittrain.snapshots.retention import Retention
from kittrain.snapshots.shards import Piece
from kittrain.snapshots.snapshot import Manifest
from kittrain.world.order import Cursor, Order

ORDER = Order(samples=10, batch=4)
DATA = (bytes(range(256)) * 16, b"weights" * 1000)  # of two shards, of 5 and 7 chunks
PIECES = tuple(
    Piece(tensor="weights", dtype="uint8", shape=(11096,), offsets=(at,), sizes=(size,), start=0, stop=size)
    for at, size in ((0, 4096), (4096, 7000))
)
EXTRAS = {"rng": b"dice"}


def manifest(steps: int = 3, generation: int = 1, **changes: Any) -> Manifest:
    """A manifest with a valid ledger; pass ``order`` for another order."""
    order: Order = changes.pop("order", ORDER)
    cursor = [Cursor(), *(order.after(span) for span in order.spans(Cursor(), 10))][steps]
    facts: dict[str, Any] = {
        "job": "a-job",
        "run": "run-1",
        "generation": generation,
        "step": steps,
        "cursor": cursor,
        "world_size": 2,
        "seed": order.seed,
        "model": "a model",
        "optimizer": "SGD",
        "data": order.fingerprint,
        "samples": order.samples,
        "batch": order.batch,
        "torch": "2.15",
        "created": 1000.0 + steps,
        "parent": None,
        "ledger": extend((), order, generation, Cursor(), cursor, world_size=2),
    }
    return Manifest(**facts | changes)


def continued(before: Manifest, steps: int, *, generation: int) -> Ledger:
    """The ledger of a snapshot of a newer generation that resumed from another snapshot."""
    cursor = manifest(steps).cursor
    return extend(before.ledger, ORDER, generation, before.cursor, cursor, world_size=2)


def in_memory(data: bytes) -> memoryview:
    """Page-aligned memory, as ranks use for their shards."""
    pages = mmap.mmap(-1, len(data))
    pages[:] = data
    return memoryview(pages)


def write_shards(folder: Path, described: Manifest) -> tuple[Path, Manifest]:
    """Write the shards; returns the unpublished folder, and the manifest with its shards."""
    scratch = folder / f"{snapshot.SCRATCH}{described.name}"
    scratch.mkdir()
    with patch("kittrain.snapshots.shards.CHUNK", 1000):
        written = [
            shards.write(scratch / shards.name(number), [in_memory(data)], [piece], EXTRAS)
            for number, (data, piece) in enumerate(zip(DATA, PIECES, strict=True))
        ]
    return scratch, replace(described, shards=tuple(written))


def save(folder: Path, described: Manifest) -> Manifest:
    """Write a snapshot without an archive."""
    scratch, described = write_shards(folder, described)
    snapshot.seal(scratch, described)
    snapshot.publish(scratch, folder / described.name)
    return described


def publish(saved: Archive, folder: Path, described: Manifest) -> None:
    """Write a snapshot through an archive."""
    scratch, described = write_shards(folder, described)
    saved.publish(described, scratch)
    saved.thin_out()


def weights_of(path: Path) -> dict[str, Any]:
    """The model's state dict of a snapshot, as it is exported."""
    file = io.BytesIO(b"".join(modelfile.pieces(weights.of_snapshot(path))))
    held: dict[str, Any] = torch.load(file, weights_only=True)
    return held


def archive(folder: Path, say: Callable[[str], None] = print, *, keep: int = 3) -> Archive:
    """The archive of these manifests."""
    return Archive(folder, run="run-1", keep=Retention(RankEnv(snapshot_keep=keep)), say=say)


def candidates(
    folder: Path, say: Callable[[str], None] = print, *, resume: Resume = "", from_scratch: bool = False
) -> Candidates:
    """The snapshots from which their run can resume."""
    identity = Identity(run="run-1", model="a model", optimizer="SGD", order=ORDER)
    return Candidates(folder, identity=identity, resume=resume, from_scratch=from_scratch, say=say)


def newest(folder: Path, say: Callable[[str], None] = print, **how: Any) -> Manifest | None:
    """The snapshot from which a run would resume; ``how`` as for ``candidates``."""
    found = candidates(folder, say, **how)
    for offer in found.offers():
        try:
            return snapshot.verify(folder / offer.name)
        except shards.CorruptError as error:
            found.pass_over(offer, error)
    found.begin_anew()
    return None
