"""Reading tensors from a snapshot's shards: each rank what it needs, however many wrote it and however many read.

Torch's distributed checkpoint plans which boxes of which pieces make up the tensors that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

Read = Callable[[int, int], bytearray | memoryview]  # a shard's bytes from one to another


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
    tensors = whole([shard.pieces for shard in opened])
    read_into(tensors, opened)
    return tensors


def whole(pieces: Iterable[Sequence[Piece]]) -> Tensors:
    """New tensors, to be filled: all that the pieces of the shards are parts of."""
    wholes = {piece.tensor: piece for shard in pieces for piece in shard}
    return {name: torch.empty(piece.shape, dtype=_dtype(piece)) for name, piece in wholes.items()}


def read_into(tensors: Tensors, opened: Sequence[ShardFile]) -> None:
    """Fill tensors, or this rank's part of distributed ones.

    Raises:
        CorruptError: what they need is damaged; says where.
        ForeignError: the shards do not hold them, or in another shape.
        OSError: it cannot be read at the moment.
    """
    filling = Filling(tensors, [shard.pieces for shard in opened])
    for number, shard in enumerate(opened):
        filling.take(number, shard.read)


class Filling:
    """Tensors, or this rank's part of distributed ones, that are filled shard by shard.

    Args:
        tensors: to be filled.
        pieces: of each shard, by number.

    Raises:
        ForeignError: the pieces do not make them up, or have another shape.
    """

    def __init__(self, tensors: Tensors, pieces: Sequence[Sequence[Piece]]) -> None:
        metadata, self._places = _index(pieces)
        self._planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._planner.set_up_planner(tensors, metadata)
        try:
            self._items = self._planner.create_local_plan().items
        except (RuntimeError, ValueError) as error:
            raise ForeignError(f"its optimizer has other states ({error})") from error

    def take(self, number: int, read: Read) -> None:
        """Fill what a shard holds. Raises what ``read`` does."""
        for item in self._items:
            shard, piece = self._places[item.storage_index]
            if shard == number:
                self._planner.resolve_tensor(item).detach().copy_(_read(read, piece, item))


def _index(pieces: Sequence[Sequence[Piece]]) -> tuple[Metadata, dict[MetadataIndex, tuple[int, Piece]]]:
    """The pieces of all shards, as torch describes them, and where each of them is."""
    boxes: dict[str, list[ChunkStorageMetadata]] = {}
    described: dict[str, STORAGE_TYPES] = {}
    places = {}
    for number, shard in enumerate(pieces):
        for piece in shard:
            known = boxes.setdefault(piece.tensor, [])
            known.append(ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes)))
            properties = TensorProperties(dtype=_dtype(piece))
            described[piece.tensor] = TensorStorageMetadata(properties, torch.Size(piece.shape), known)
            places[MetadataIndex(piece.tensor, piece.offsets)] = number, piece
    return Metadata(described), places


def _read(read: Read, piece: Piece, item: ReadItem) -> Tensor:
    """The box that an item asks for: of the piece's rows only those that it is in are read."""
    start, stop = piece.start, piece.stop
    offsets, lengths, sizes = list(item.storage_offsets), list(item.lengths), list(piece.sizes)
    if sizes:
        row = (stop - start) // max(1, sizes[0])
        start, stop = start + offsets[0] * row, start + (offsets[0] + lengths[0]) * row
        offsets[0], sizes[0] = 0, lengths[0]
    if start == stop:
        return torch.empty(lengths, dtype=_dtype(piece))
    box = torch.frombuffer(read(start, stop), dtype=_dtype(piece)).view(sizes)
    for dimension, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        box = box.narrow(dimension, offset, length)
    return box


def _dtype(piece: Piece) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, piece.dtype)
    return dtype
