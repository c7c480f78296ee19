"""Writes the snapshots of a run without training, and damages them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, Manifest, Parent
from tests.trainer import saved

WEIGHTS = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor(0.5)}


def run(folder: Path, *steps: int, generation: int = 1) -> list[Manifest]:
    """Write the snapshots of a run, each continuing the one before; returns them, the newest last."""
    written: list[Manifest] = []
    for step in steps:
        before = parent(written[-1]) if written else None
        written.append(save(folder, saved.manifest(step, generation, parent=before)))
    return written


def save(folder: Path, described: Manifest) -> Manifest:
    """Write a snapshot of the weights and an optimizer's state."""
    tensors = {f"model/{name}": tensor for name, tensor in WEIGHTS.items()} | {
        "optimizer/state/bias/step": torch.ones(1)
    }
    pieces, data = [], b""
    for name, tensor in tensors.items():
        start, data = len(data), data + tensor.numpy().tobytes()
        shape = tuple(tensor.shape)
        box = {"shape": shape, "offsets": (0,) * len(shape), "sizes": shape}
        pieces.append(Piece(tensor=name, dtype="float32", **box, start=start, stop=len(data)))
    scratch = folder / f"{snapshot.SCRATCH}{described.name}"
    scratch.mkdir()
    described = replace(described, shards=(shards.write(scratch / shards.name(0), [memoryview(data)], pieces, {}),))
    snapshot.write_manifest(scratch, described)
    snapshot.publish(scratch, folder / described.name)
    return described


def parent(manifest: Manifest) -> Parent:
    """The parent entry of a snapshot that continues this one."""
    return Parent(name=manifest.name, digest=manifest.digest)


def resign(path: Path, **changes: Any) -> Manifest:
    """Tamper with a snapshot's manifest, and update its digest to match."""
    changed = replace(snapshot.read_manifest(path), **changes)
    (path / MANIFEST).write_text(json.dumps(snapshot.facts_of(changed) | {"digest": changed.digest}))
    return changed


def flip(file: Path, offset: int = 3) -> None:
    """Change one bit of a file."""
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


DAMAGE: Final[dict[str, Callable[[Path], None]]] = {
    "a bit in a tensor": lambda path: flip(path / "shard-00000.bin", 3),
    "a bit in the tail": lambda path: flip(path / "shard-00000.bin", -3),
    "a bit in the manifest": lambda path: flip(path / MANIFEST, 100),
    "a truncated shard": lambda path: os.truncate(path / "shard-00000.bin", 100),
    "a missing shard": lambda path: (path / "shard-00000.bin").unlink(),
}  # by description, for a snapshot's folder
