"""A model's plain state dict, read tensor by tensor: the source of model files and exports.

Besides a model that is in memory anyway, at most one tensor is in memory at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kittrain.rank.snapshots.files import tree
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.files.tree import PLACEHOLDER, Structure, Tensors
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import MODEL, REST
from kittrain.rank.snapshots.state import tensor_reader
from kittrain.rank.snapshots.state.tensor_reader import TensorFiller


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A state dict whose tensors are read on demand.

    Attributes:
        tree: the state dict with a placeholder for each tensor: ``tensor/`` and its name.
        structure: of the tensors by name.
        read: from a name to the tensor, in main memory and contiguous; may raise ``CorruptError`` and ``OSError``.
    """

    tree: dict[str, Any]
    structure: Structure
    read: Callable[[str], Tensor]

    def content(self, name: str) -> memoryview:
        """A tensor's bytes, in row-major order."""
        flat = self.read(name).reshape(-1).view(torch.uint8)  # flat first: a scalar cannot be viewed as bytes
        content: memoryview = flat.numpy().data
        return content


def of_model(state_dict: dict[str, Any]) -> Weights:
    """The weights of a model in this process, on any device.

    Args:
        state_dict: must not change meanwhile; two names of one tensor remain tied.
    """
    tensors, rest, _ = tree.split(state_dict)
    first: dict[int, str] = {}
    placeholders = {name: PLACEHOLDER + first.setdefault(id(tensor), name) for name, tensor in tensors.items()}
    return Weights(
        tree=tree.join(placeholders, rest),
        structure={name: (tensors[name].shape, tensors[name].dtype) for name in first.values()},
        read=lambda name: tensors[name].detach().cpu().contiguous(),
    )


def of_sharded(state_dict: dict[str, Any]) -> tuple[Tensors, Weights]:
    """The tensors of a sharded model by name, each once, and its weights, of which no tensor can be read."""
    tensors = tree.split(state_dict).tensors
    weights = of_model(state_dict)
    return {name: tensors[name] for name in weights.structure}, weights


def of_snapshot(path: Path) -> Weights:
    """The weights of a snapshot on disk; every byte is verified when it is read.

    Raises:
        CorruptError: the snapshot is damaged; says where.
        IncompatibleError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    opened = list(snapshot.open_shards(path, snapshot.read_manifest(path)))
    parts: defaultdict[str, dict[ShardFile, list[Piece]]] = defaultdict(dict)
    for shard in opened:
        for piece in shard.pieces:
            if piece.tensor.startswith(MODEL):
                parts[piece.tensor].setdefault(shard, []).append(piece)
    structure = tensor_reader.structure(pieces for by_shard in parts.values() for pieces in by_shard.values())

    def read(name: str) -> Tensor:
        (shape, dtype), shards = structure[name], list(parts[name])
        whole = torch.empty(shape, dtype=dtype)
        filler = TensorFiller({name: whole}, list(parts[name].values()))
        filler.fill(lambda number, start, stop: shards[number].read(start, stop))
        return whole

    return Weights(tree=_tree(opened, structure), structure=structure, read=read)


def _tree(opened: list[ShardFile], structure: Structure) -> dict[str, Any]:
    for shard in opened:
        if REST in shard.tail.extras:
            model: dict[str, Any] = tree.load(shard.tail.extras[REST])["model"]
            return model
    return {name.removeprefix(MODEL): PLACEHOLDER + name for name in structure}
