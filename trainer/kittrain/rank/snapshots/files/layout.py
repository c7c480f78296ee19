"""Where one rank's part of the state is in its shard, and copies of it. ``planning`` decides which part that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.files.tree import Structure, Tensors
from kittrain.system import direct_io
from kittrain.torch_private.ranks import copy_all

ALIGNMENT: Final = 64  # bytes: a cache line, and at least what any of torch's types needs


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One rank's part of the state, as consecutive pieces.

    Attributes:
        structure: of the state that it was planned for.
        pieces: what this rank writes, with offsets in the shard's data.
        trained: names of the tensors that are trained.
    """

    structure: Structure
    pieces: tuple[Piece, ...]
    trained: frozenset[str]

    @classmethod
    def of(cls, parts: Iterable[Piece], tensors: Tensors) -> Layout:
        """Assign aligned offsets to parts of the state, ignoring the offsets that they have."""
        pieces: list[Piece] = []
        for part in parts:
            start = -(-(pieces[-1].stop if pieces else 0) // ALIGNMENT) * ALIGNMENT
            pieces.append(replace(part, start=start, stop=start + part.stop - part.start))
        trained = frozenset(name for name, tensor in tensors.items() if tensor.requires_grad)
        return cls(structure=structure(tensors), pieces=tuple(pieces), trained=trained)

    @property
    def size(self) -> int:
        """Bytes of the shard's data."""
        return self.pieces[-1].stop if self.pieces else 0


class Buffer:
    """Memory that holds a copy of a rank's part of the state: the shard's data.

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
        """Copy this rank's part of the state, which has the structure of the layout."""
        if not self._memory.is_pinned():
            with torch.no_grad():  # instead of one call for each, which takes longer than to copy a small one
                copy_all(self._targets, [_here(tensors[piece.tensor]) for piece in self.layout.pieces])
            return
        for piece, target in zip(self.layout.pieces, self._targets, strict=True):
            target.copy_(local_part(tensors[piece.tensor]), non_blocking=True)
        torch.cuda.synchronize()


class BounceBuffer:
    """A small buffer to stream a rank's part of the state through, without memory for a full copy.

    Args:
        layout: of the part.
        memory: bytes, (any size above 0,).
    """

    def __init__(self, layout: Layout, memory: Tensor) -> None:
        self.layout = layout
        self._memory = memory
        self._pinned = memory.is_pinned()

    def stream(self, tensors: Tensors) -> Iterator[memoryview]:
        """The shard's data in parts; each is valid until the next is requested. The state must not change meanwhile."""
        begin, size = 0, len(self._memory)
        for piece in self.layout.pieces:
            content = local_part(tensors[piece.tensor]).contiguous().view(-1).view(torch.uint8)
            at = piece.start
            while at < piece.stop:
                if at >= begin + size:
                    yield self._contents(size)
                    begin += size
                    continue
                stop = min(piece.stop, begin + size)
                part = content[at - piece.start : stop - piece.start]
                self._memory[at - begin : stop - begin].copy_(part, non_blocking=self._pinned)
                at = stop
        if begin < self.layout.size:
            yield self._contents(self.layout.size - begin)

    def _contents(self, size: int) -> memoryview:
        if self._pinned:
            torch.cuda.synchronize()
        data: memoryview = self._memory[:size].numpy().data
        return data


def aligned_memory(size: int, *, pinned: bool) -> Tensor:
    """Zeros, (size,) bytes, aligned for direct I/O; all pages are allocated.

    Args:
        size: bytes.
        pinned: whether a GPU copies to it.
    """
    whole = torch.zeros(size + direct_io.BLOCK, dtype=torch.uint8, pin_memory=pinned)
    start = -whole.data_ptr() % direct_io.BLOCK
    return whole[start : start + size]


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of the part of a tensor that this rank holds, in main memory, in row-major order."""
    flat = (
        local_part(tensor).cpu().contiguous().reshape(-1).view(torch.uint8)
    )  # flat first: a scalar has no bytes to view
    content: memoryview = flat.numpy().data
    return content


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds."""
    return _here(tensor.detach())


def _here(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def structure(tensors: Tensors) -> Structure:
    """The shapes and types, which a layout depends on."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
