"""Manifests, snapshots and archives for tests, made without training."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from kitjob.fields import Resume
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import Archive
from kittrain.rank.snapshots.folder.candidates import Candidates
from kittrain.rank.snapshots.folder.compatibility import Identity
from kittrain.rank.snapshots.folder.ledger import Ledger, extend
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import Manifest
from kittrain.rank.snapshots.state import model_file, weights
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.settings import job

ORDER = Order(samples=10, batch=4)
DATA = (bytes(range(256)) * 16, b"weights" * 1000)  # of two shards, of 5 and 7 chunks
PIECES = tuple(
    Piece(tensor="weights", dtype="uint8", shape=(11096,), offsets=(at,), sizes=(size,), start=0, stop=size)
    for at, size in ((0, 4096), (4096, 7000))
)
EXTRAS = {"rng": b"dice"}


def manifest(steps: int = 3, generation: int = 1, **changes: Any) -> Manifest:
    """A manifest with a valid ledger, in another ``order`` if one is given."""
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
    """The ledger of a newer generation's snapshot that continues another one."""
    cursor = manifest(steps).cursor
    return extend(before.ledger, ORDER, generation, before.cursor, cursor, world_size=2)


def in_memory(data: bytes) -> memoryview:
    """Page-aligned memory, as a rank's part of the state has."""
    pages = mmap.mmap(-1, len(data))
    pages[:] = data
    return memoryview(pages)


def write_shards(folder: Path, described: Manifest) -> tuple[Path, Manifest]:
    """Write shards as the ranks do; returns the scratch folder to publish, and the manifest with the shards."""
    scratch = folder / f"{snapshot.SCRATCH}{described.name}"
    scratch.mkdir()
    with patch("kittrain.rank.snapshots.files.shards.CHUNK", 1000):
        written = [
            shards.write(scratch / shards.name(number), [in_memory(data)], [piece], EXTRAS)
            for number, (data, piece) in enumerate(zip(DATA, PIECES, strict=True))
        ]
    return scratch, replace(described, shards=tuple(written))


def save(folder: Path, described: Manifest) -> Manifest:
    """Write a snapshot without an archive: no fence, no retention."""
    scratch, described = write_shards(folder, described)
    snapshot.write_manifest(scratch, described)
    snapshot.publish(scratch, folder / described.name)
    return described


def publish(saved: Archive, folder: Path, described: Manifest) -> None:
    """Publish a snapshot through an archive."""
    scratch, described = write_shards(folder, described)
    saved.publish(described, scratch)
    saved.apply_retention()


def weights_of(path: Path) -> dict[str, Any]:
    """A snapshot's model state dict, as exported."""
    file = io.BytesIO(b"".join(model_file.stream(weights.of_snapshot(path))))
    state_dict: dict[str, Any] = torch.load(file, weights_only=True)
    return state_dict


def archive(folder: Path, log: Callable[[str], None] = print, *, keep: int = 3) -> Archive:
    """The archive of the run that those manifests belong to."""
    return Archive(folder, run="run-1", retention=Retention(RankEnv(job=job(snapshots__keep=keep))), log=log)


def candidates(
    folder: Path,
    log: Callable[[str], None] = print,
    *,
    resume: Resume = False,
    from_scratch: bool = False,
    finite: bool = False,
) -> Candidates:
    """The snapshots that their run may resume from."""
    identity = Identity(run="run-1", model="a model", optimizer="SGD", order=ORDER)
    return Candidates(folder, identity=identity, resume=resume, from_scratch=from_scratch, finite=finite, log=log)


def newest(folder: Path, log: Callable[[str], None] = print, **options: Any) -> Manifest | None:
    """The snapshot that a run would resume from; ``options`` as for ``candidates``."""
    found = candidates(folder, log, **options)
    for manifest in found.compatible():
        try:
            return snapshot.verify(folder / manifest.name)
        except shards.CorruptError as error:
            found.reject(manifest, error)
    found.check_from_scratch()
    return None
