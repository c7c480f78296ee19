"""Reading tensors from a snapshot's shards: each rank what it needs, however many wrote it and however many read.

Torch's distributed checkpoint plans which boxes of which pieces make up the tensors that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from trainer.snapshots import snapshot
from trainer.snapshots.shards import Piece, ShardFile
from trainer.snapshots.snapshot import MODEL, ForeignError
from trainer.snapshots.state import Tensors


def load_full(path: Path) -> Tensors:
    """All tensors of a snapshot in main memory, by name: ``model/0.weight``, ``optimizer/state/0.weight/exp_avg``.

    Every byte has been verified; needs no process group.

    Raises:
        CorruptError: the snapshot is damaged; says where.
        ForeignError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    with snapshot.open_shards(path, snapshot.read_manifest(path)) as opened:
        return read_full(opened)


def weights(path: Path) -> Tensors:
    """The model's bare state dict, from verified bytes, in main memory. Raises as ``load_full`` does."""
    tensors = load_full(path)
    return {name.removeprefix(MODEL): one for name, one in tensors.items() if name.startswith(MODEL)}


def read_full(opened: Sequence[ShardFile]) -> Tensors:
    """As ``load_full``, of open shards."""
    wholes = {piece.tensor: piece for shard in opened for piece in shard.pieces}
    tensors = {name: torch.empty(piece.shape, dtype=_dtype(piece)) for name, piece in wholes.items()}
    read_into(tensors, opened)
    return tensors


def read_into(tensors: Tensors, opened: Sequence[ShardFile]) -> None:
    """Fill tensors, or this rank's part of distributed ones.

    Raises:
        CorruptError: what they need is damaged; says where.
        ForeignError: the shards do not hold them, or in another shape.
        OSError: it cannot be read at the moment.
    """
    metadata, places = _index(opened)
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(tensors, metadata)
    try:
        plan = planner.create_local_plan()
    except (RuntimeError, ValueError) as error:
        raise ForeignError(f"its optimizer has other states ({error})") from error
    for item in plan.items:
        shard, piece = places[item.storage_index]
        planner.resolve_tensor(item).detach().copy_(_read(shard, piece, item))


def _index(opened: Sequence[ShardFile]) -> tuple[Metadata, dict[MetadataIndex, tuple[ShardFile, Piece]]]:
    """The pieces of all shards, as torch describes them, and where each of them is."""
    boxes: dict[str, list[ChunkStorageMetadata]] = {}
    described: dict[str, STORAGE_TYPES] = {}
    places = {}
    for shard in opened:
        for piece in shard.pieces:
            known = boxes.setdefault(piece.tensor, [])
            known.append(ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes)))
            properties = TensorProperties(dtype=_dtype(piece))
            described[piece.tensor] = TensorStorageMetadata(properties, torch.Size(piece.shape), known)
            places[MetadataIndex(piece.tensor, piece.offsets)] = shard, piece
    return Metadata(described), places


def _read(shard: ShardFile, piece: Piece, item: ReadItem) -> Tensor:
    """The box that an item asks for: of the piece's rows only those that it is in are read."""
    start, stop = piece.start, piece.stop
    offsets, lengths, sizes = list(item.storage_offsets), list(item.lengths), list(piece.sizes)
    if sizes:
        row = (stop - start) // max(1, sizes[0])
        start, stop = start + offsets[0] * row, start + (offsets[0] + lengths[0]) * row
        offsets[0], sizes[0] = 0, lengths[0]
    if start == stop:
        return torch.empty(lengths, dtype=_dtype(piece))
    box = torch.frombuffer(shard.read(start, stop), dtype=_dtype(piece)).view(sizes)
    for dimension, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        box = box.narrow(dimension, offset, length)
    return box


def _dtype(piece: Piece) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, piece.dtype)
    return dtype
