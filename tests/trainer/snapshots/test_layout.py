"""Whoever wrote which part of a tensor: every byte is written once, and any box of it is read back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from trainer.snapshots import blocks, layout, loading, shards
from trainer.snapshots.layout import Buffer, Layout
from trainer.snapshots.shards import Piece, ShardFile

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64)
SIZES = st.lists(st.integers(0, 5), max_size=3)
NAMES = st.sampled_from(["a", "b", "c.d", "e"])


def tensor(sizes: list[int], dtype: torch.dtype) -> Tensor:
    count = torch.Size(sizes).numel()
    return (torch.arange(count) % 3).to(dtype).view(sizes)


@settings(deadline=None, max_examples=60)
@given(
    state=st.dictionaries(NAMES, st.builds(tensor, SIZES, st.sampled_from(DTYPES))),
    ranks=st.integers(1, 4),
    main_only=st.booleans(),
    chunk=st.sampled_from([7, 64, 4096]),
)
def test_what_ranks_hold_alike_is_written_once_and_comes_back(
    *, state: dict[str, Tensor], ranks: int, main_only: bool, chunk: int
) -> None:
    held = layout.held(state)
    shares = layout.share_out([held] * ranks, main_only=main_only)
    assert sorted(held[number].tensor for share in shares for number in share) == sorted(state)
    assert not main_only or not any(shares[1:])
    with TemporaryDirectory() as folder, patch("trainer.snapshots.shards.CHUNK", chunk):
        opened = []
        for rank, share in enumerate(shares):
            planned = Layout.of([held[number] for number in share], state)
            part = Buffer(planned, torch.zeros(planned.size, dtype=torch.uint8))
            part.copy(state)
            path = Path(folder) / shards.name(rank)
            told = shards.write(path, part.data, planned.pieces, {})
            opened.append(ShardFile(path, told))
        found = loading.read_full(opened)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], one) and found[name].dtype == one.dtype for name, one in state.items())


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Tensor, list[int], ChunkStorageMetadata]:
    """A tensor, the rows that it is cut at, and a box of it."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    whole = torch.arange(torch.Size(sizes).numel(), dtype=torch.int32).view(sizes)
    cuts = sorted(draw(st.lists(st.integers(0, sizes[0]), max_size=3)))
    starts = [draw(st.integers(0, size - 1)) for size in sizes]
    lengths = [draw(st.integers(1, size - start)) for size, start in zip(sizes, starts, strict=True)]
    return whole, cuts, ChunkStorageMetadata(torch.Size(starts), torch.Size(lengths))


@settings(deadline=None, max_examples=60)
@given(boxes(), st.sampled_from([7, 4096]), st.sampled_from([1, 20, 4096]))
def test_any_box_of_what_ranks_hold_in_parts_is_read(
    asked: tuple[Tensor, list[int], ChunkStorageMetadata], chunk: int, block_size: int
) -> None:
    whole, cuts, box = asked
    parts = [(low, whole[low:high]) for low, high in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    with TemporaryDirectory() as folder, patch("trainer.snapshots.shards.CHUNK", chunk):
        opened = [written(Path(folder), number, whole, *part) for number, part in enumerate(parts) if len(part[1])]
        metadata, places = loading._index([shard.pieces for shard in opened])
        found = torch.full(box.sizes, -1, dtype=whole.dtype)
        for item in create_read_items_for_chunk_list("t", metadata.state_dict_metadata["t"], [box]):  # type: ignore[arg-type]
            target = found
            for dimension, (start, length) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
                target = target.narrow(dimension, start, length)
            number, piece = places[item.storage_index]
            for block in blocks.blocks([loading._needed(piece, [item])], size=block_size):
                for rows in block.rows:
                    content = torch.frombuffer(opened[number].read(rows.start, rows.stop), dtype=torch.uint8)
                    loading._copy(loading.tensor_of(rows, content), rows, item, target)
    expected = whole
    for dimension, (start, length) in enumerate(zip(box.offsets, box.sizes, strict=True)):
        expected = expected.narrow(dimension, start, length)
    assert torch.equal(found, expected)


def written(folder: Path, number: int, whole: Tensor, low: int, rows: Tensor) -> ShardFile:
    """A shard with some rows of a tensor."""
    piece = Piece(
        tensor="t",
        dtype="int32",
        shape=tuple(whole.shape),
        offsets=(low, *[0] * (whole.dim() - 1)),
        sizes=tuple(rows.shape),
        start=0,
        stop=rows.nbytes,
    )
    path = folder / shards.name(number)
    return ShardFile(path, shards.write(path, memoryview(rows.numpy().tobytes()), [piece], {}))
