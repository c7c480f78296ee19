"""Which rank writes which part of the state, and where in its shard; planned by torch's distributed checkpoint.

What all ranks hold alike is shared out between them, and each writes what it alone holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from kittrain.snapshots.shards import Piece
from kittrain.snapshots.tree import Structure, Tensors
from kittrain.system import direct_io
from kittrain.world.distributed import World

ALIGNMENT: Final = 64  # bytes: a cache line, and more than any type of torch's asks for


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A rank's part of the state, one piece behind the other.

    Attributes:
        structure: of the state that it was planned for.
        pieces: what this rank writes, and where it is in the shard's data.
    """

    structure: Structure
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, parts: Iterable[Piece], tensors: Tensors) -> Layout:
        """Lay parts of the state out, wherever they were before."""
        pieces: list[Piece] = []
        for part in parts:
            start = -(-(pieces[-1].stop if pieces else 0) // ALIGNMENT) * ALIGNMENT
            pieces.append(replace(part, start=start, stop=start + part.stop - part.start))
        return cls(structure=structure(tensors), pieces=tuple(pieces))

    @property
    def size(self) -> int:
        """Bytes of the shard's data."""
        return self.pieces[-1].stop if self.pieces else 0


class Buffer:
    """Memory that a rank's part of the state is copied to: the shard's data.

    Args:
        layout: of the part.
        memory: bytes, (size,).
    """

    def __init__(self, layout: Layout, memory: Tensor) -> None:
        self.layout = layout
        self._memory = memory
        self._targets = [
            memory[piece.start : piece.stop].view(layout.structure[piece.tensor][1]).view(piece.sizes)
            for piece in layout.pieces
        ]

    @property
    def data(self) -> memoryview:
        """The bytes, not a copy."""
        data: memoryview = self._memory.numpy().data
        return data

    def copy(self, tensors: Tensors) -> None:
        """Copy this rank's part of the state, which has the structure that was planned for."""
        pinned = self._memory.is_pinned()
        for piece, target in zip(self.layout.pieces, self._targets, strict=True):
            target.copy_(_local(tensors[piece.tensor]), non_blocking=pinned)
        if pinned:
            torch.cuda.synchronize()


class Window:
    """A little memory that a rank's part of the state passes through, where there is none for a copy of all of it.

    Args:
        layout: of the part.
        memory: bytes, (any size above 0,).
    """

    def __init__(self, layout: Layout, memory: Tensor) -> None:
        self.layout = layout
        self._memory = memory
        self._pinned = memory.is_pinned()

    def parts(self, tensors: Tensors) -> Iterator[memoryview]:
        """The shard's data, each part until the next one is asked for. The state must not change meanwhile."""
        begin, size = 0, len(self._memory)
        for piece in self.layout.pieces:
            content = _local(tensors[piece.tensor]).contiguous().view(-1).view(torch.uint8)
            at = piece.start
            while at < piece.stop:
                if at >= begin + size:
                    yield self._filled(size)
                    begin += size
                    continue
                stop = min(piece.stop, begin + size)
                part = content[at - piece.start : stop - piece.start]
                self._memory[at - begin : stop - begin].copy_(part, non_blocking=self._pinned)
                at = stop
        if begin < self.layout.size:
            yield self._filled(self.layout.size - begin)

    def _filled(self, size: int) -> memoryview:
        if self._pinned:
            torch.cuda.synchronize()
        data: memoryview = self._memory[:size].numpy().data
        return data


def memory(size: int, *, pinned: bool) -> Tensor:
    """Zeros, (size,) bytes: where a disk can read them itself, on pages that are there already.

    Args:
        size: bytes.
        pinned: whether a GPU copies to them.
    """
    whole = torch.zeros(size + direct_io.BLOCK, dtype=torch.uint8, pin_memory=pinned)
    start = -whole.data_ptr() % direct_io.BLOCK
    return whole[start : start + size]


def _local(tensor: Tensor) -> Tensor:
    """What this rank holds of it."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def structure(tensors: Tensors) -> Structure:
    """What a layout depends on."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def plan(world: World, tensors: Tensors, *, main_only: bool) -> Layout:
    """Share out the state. Collective.

    Args:
        world: all ranks.
        tensors: of this rank; all ranks have the same names.
        main_only: whether rank 0 writes all that the ranks hold alike.
    """
    parts = held(tensors)
    shares = share_out(world.gather(parts, list[Piece]), main_only=main_only)
    return Layout.of((parts[number] for number in world.scatter(shares, list[int])), tensors)


def held(tensors: Tensors) -> list[Piece]:
    """What a rank holds of the state, each part as if it were alone in a shard."""
    return [_piece(item) for item in create_default_local_save_plan(tensors, is_coordinator=True).items]


def share_out(parts: Sequence[Sequence[Piece]], *, main_only: bool) -> list[list[int]]:
    """Which of its parts each rank writes, by their numbers: what several ranks hold alike is written once.

    Args:
        parts: of each rank.
        main_only: whether rank 0 writes all that the ranks hold alike.
    """
    planner = DefaultSavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=main_only)
    planner.set_up_planner({})
    plans, _ = planner.create_global_plan([SavePlan([_item(part) for part in held]) for held in parts])
    chosen = [{item.index for item in plan.items} for plan in plans]
    return [
        [number for number, part in enumerate(held) if _item(part).index in mine]
        for held, mine in zip(parts, chosen, strict=True)
    ]


def _item(part: Piece) -> WriteItem:
    """A part as torch's planner knows it."""
    offsets = torch.Size(part.offsets)
    data = TensorWriteData(
        chunk=ChunkStorageMetadata(offsets=offsets, sizes=torch.Size(part.sizes)),
        properties=TensorProperties(dtype=getattr(torch, part.dtype)),
        size=torch.Size(part.shape),
    )
    return WriteItem(index=MetadataIndex(part.tensor, offsets), type=WriteItemType.SHARD, tensor_data=data)


def _piece(item: WriteItem) -> Piece:
    facts = item.tensor_data
    assert facts is not None
    return Piece(
        tensor=item.index.fqn,
        dtype=str(facts.properties.dtype).removeprefix("torch."),
        shape=tuple(facts.size),
        offsets=tuple(facts.chunk.offsets),
        sizes=tuple(facts.chunk.sizes),
        start=0,
        stop=facts.chunk.sizes.numel() * facts.properties.dtype.itemsize,
    )
