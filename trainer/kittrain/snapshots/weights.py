"""A model's bare state dict, tensor by tensor: what a model file and an export are written from.

Beside the model that is trained, or with none at all, no more than one tensor is in memory at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kittrain.snapshots import loading, snapshot, tree
from kittrain.snapshots.loading import Filling
from kittrain.snapshots.shardfile import ShardFile
from kittrain.snapshots.shards import Piece
from kittrain.snapshots.snapshot import MODEL, REST
from kittrain.snapshots.tree import PLACE, Structure


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A state dict whose tensors are read when they are asked for.

    Attributes:
        tree: the state dict, with a text that names it instead of each tensor: ``tensor/`` and its name.
        structure: of the tensors by name.
        read: a tensor by its name, in main memory and contiguous; may raise ``CorruptError`` and ``OSError``.
    """

    tree: dict[str, Any]
    structure: Structure
    read: Callable[[str], Tensor]

    def content(self, name: str) -> memoryview:
        """A tensor's bytes, in row-major order."""
        flat = self.read(name).reshape(-1).view(torch.uint8)  # flat first: a scalar cannot be seen as bytes
        content: memoryview = flat.numpy().data
        return content


def live(held: dict[str, Any]) -> Weights:
    """Of a model that is in this process, on any device.

    Args:
        held: its state dict, which must not change meanwhile; two names for one tensor stay that.
    """
    tensors, rest = tree.split(held)
    first: dict[int, str] = {}
    places = {name: PLACE + first.setdefault(id(tensor), name) for name, tensor in tensors.items()}
    return Weights(
        tree=tree.join(places, rest),
        structure={name: (tensors[name].shape, tensors[name].dtype) for name in first.values()},
        read=lambda name: tensors[name].detach().cpu().contiguous(),
    )


def of_snapshot(path: Path) -> Weights:
    """Of a snapshot on disk; every byte is verified when it is read.

    Raises:
        CorruptError: the snapshot is damaged; says where.
        ForeignError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    opened = list(snapshot.open_shards(path, snapshot.read_manifest(path)))
    parts: defaultdict[str, dict[ShardFile, list[Piece]]] = defaultdict(dict)
    for shard in opened:
        for piece in shard.pieces:
            if piece.tensor.startswith(MODEL):
                parts[piece.tensor].setdefault(shard, []).append(piece)
    structure = loading.structure(pieces for held in parts.values() for pieces in held.values())

    def read(name: str) -> Tensor:
        (shape, dtype), held = structure[name], list(parts[name])
        whole = torch.empty(shape, dtype=dtype)
        Filling({name: whole}, list(parts[name].values())).fill(lambda number, *span: held[number].read(*span))
        return whole

    return Weights(tree=_tree(opened, structure), structure=structure, read=read)


def _tree(opened: list[ShardFile], structure: Structure) -> dict[str, Any]:
    for shard in opened:
        if REST in shard.tail.extras:
            held: dict[str, Any] = tree.load(shard.tail.extras[REST])["model"]
            return held
    return {name.removeprefix(MODEL): PLACE + name for name in structure}
