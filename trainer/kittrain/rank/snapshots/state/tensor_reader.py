"""Reads tensors from a snapshot's shards: each rank what it needs, for any number of writers and readers.

Torch's distributed checkpoint planner finds the boxes of the pieces that make up the requested tensors. They are
filled block by block, each verified before it is used: besides the tensors, only one block is in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from kittrain.rank.snapshots.files import blocks
from kittrain.rank.snapshots.files.blocks import Block, Rows
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.files.tree import Structure, Tensors
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError


def load_full(path: Path) -> Tensors:
    """All tensors of a snapshot in main memory, by name: ``model/0.weight``, ``optimizer/state/0.weight/exp_avg``.

    Every byte is verified. Needs no process group.

    Raises:
        CorruptError: the snapshot is damaged; says where.
        IncompatibleError: it is of another version.
        OSError: it cannot be read at the moment.
    """
    return read_full(list(snapshot.open_shards(path, snapshot.read_manifest(path))))


def read_full(opened: Sequence[ShardFile]) -> Tensors:
    """As ``load_full``, from open shards."""
    wholes = structure(shard.pieces for shard in opened)
    tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in wholes.items()}
    read_into(tensors, opened)
    return tensors


def structure(pieces: Iterable[Sequence[Piece]]) -> Structure:
    """The whole tensors that the shards' pieces belong to."""
    wholes = {piece.tensor: piece for shard in pieces for piece in shard}
    return {name: (torch.Size(piece.shape), dtype_of(piece)) for name, piece in wholes.items()}


def read_into(tensors: Tensors, opened: Sequence[ShardFile]) -> None:
    """Fill tensors, or this rank's part of distributed ones, in place.

    Raises:
        CorruptError: what they need is damaged; says where. Some of them may be filled already.
        IncompatibleError: the shards do not hold them, or in another shape; none of them was changed.
        OSError: it cannot be read at the moment; some of them may be filled already.
    """
    filler = TensorFiller(tensors, [shard.pieces for shard in opened])
    filler.fill(lambda number, start, stop: opened[number].read(start, stop))


class TensorFiller:
    """Fills tensors, or this rank's part of distributed ones, block by block.

    Args:
        tensors: to be filled.
        pieces: of each shard, by number.

    Raises:
        IncompatibleError: the pieces do not make up the tensors, or have another shape.
    """

    def __init__(self, tensors: Tensors, pieces: Sequence[Sequence[Piece]]) -> None:
        metadata, locations = _index(pieces)
        self._planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._planner.set_up_planner(tensors, metadata)
        try:
            items = self._planner.create_local_plan().items
        except (RuntimeError, ValueError) as error:
            raise IncompatibleError(f"its model or optimizer has other states ({error})") from error
        self._items: defaultdict[int, defaultdict[Piece, list[ReadItem]]] = defaultdict(lambda: defaultdict(list))
        for item in items:
            number, piece = locations[item.storage_index]
            self._items[number][piece].append(item)

    def fill(self, read: Callable[[int, int, int], bytearray]) -> None:
        """Read and fill everything that is needed here.

        Args:
            read: from shard number, start and stop to verified bytes. Its errors are passed on.
        """
        for number in sorted(self._items):
            for block in blocks.blocks(self._rows(number)):
                content = read(number, block.start, block.stop)
                self.put(number, block, torch.frombuffer(content, dtype=torch.uint8))

    def _rows(self, number: int) -> list[Rows]:
        """The rows of a shard that are needed here, in the order of their bytes."""
        rows = [_needed(piece, items) for piece, items in self._items[number].items()]
        return sorted(rows, key=lambda one: one.start)

    def put(self, number: int, block: Block, content: Tensor) -> None:
        """Copy what is needed here from a block of a shard.

        Args:
            number: of the shard.
            block: of it.
            content: its verified bytes, (block.stop - block.start,), on any device.
        """
        for rows in block.rows:
            if items := self._items[number].get(rows.piece):
                values = tensor_of(rows, content[rows.start - block.start : rows.stop - block.start])
                for item in items:
                    _copy(values, rows, item, self._planner.resolve_tensor(item).detach())


def tensor_of(rows: Rows, content: Tensor) -> Tensor:
    """Bytes as elements: (rows.count, ...); () for a piece without dimensions."""
    dtype = dtype_of(rows.piece)
    if content.storage_offset() % dtype.itemsize:
        content = content.clone()  # view() needs aligned bytes
    sizes = rows.piece.sizes
    return content.view(dtype).view((rows.count, *sizes[1:]) if sizes else ())


def dtype_of(piece: Piece) -> torch.dtype:
    """Torch's type of a piece's elements."""
    dtype: torch.dtype = getattr(torch, piece.dtype)
    return dtype


def _index(pieces: Sequence[Sequence[Piece]]) -> tuple[Metadata, dict[MetadataIndex, tuple[int, Piece]]]:
    """The pieces of all shards as torch's metadata, and the shard number and piece by index."""
    boxes: dict[str, list[ChunkStorageMetadata]] = {}
    described: dict[str, STORAGE_TYPES] = {}
    locations = {}
    for number, shard in enumerate(pieces):
        for piece in shard:
            known = boxes.setdefault(piece.tensor, [])
            known.append(ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes)))
            properties = TensorProperties(dtype=dtype_of(piece))
            described[piece.tensor] = TensorStorageMetadata(properties, torch.Size(piece.shape), known)
            locations[MetadataIndex(piece.tensor, piece.offsets)] = number, piece
    return Metadata(described), locations


def _needed(piece: Piece, items: Sequence[ReadItem]) -> Rows:
    """The smallest contiguous range of rows of a piece that contains some items."""
    if not piece.sizes:
        return Rows(piece=piece, first=0, count=1)
    first = min(item.storage_offsets[0] for item in items)
    stop = max(item.storage_offsets[0] + item.lengths[0] for item in items)
    return Rows(piece=piece, first=first, count=stop - first)


def _copy(values: Tensor, rows: Rows, item: ReadItem, target: Tensor) -> None:
    """Copy the part of an item that is in these rows of a piece.

    Args:
        values: of the rows.
        rows: which of the piece.
        item: a box of the piece.
        target: the tensor for the box.
    """
    for dimension, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        if dimension:
            values = values.narrow(dimension, offset, length)
        else:
            low, high = max(rows.first, offset), min(rows.first + rows.count, offset + length)
            if low >= high:
                return
            values = values.narrow(0, low - rows.first, high - low)
            target = target.narrow(0, low - offset, high - low)
    target.copy_(values)


def all_blocks(pieces: Sequence[Sequence[Piece]]) -> Iterator[tuple[int, Block]]:
    """All blocks of all shards with their shard's number, in the same order on all ranks."""
    for number, shard in enumerate(pieces):
        for block in blocks.blocks(blocks.all_rows(shard)):
            yield number, block
