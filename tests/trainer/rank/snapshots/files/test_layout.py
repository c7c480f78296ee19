"""Every byte of a tensor is written once, by some rank, and any box of it is read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from kittrain.rank.snapshots.files import blocks, shards
from kittrain.rank.snapshots.files.layout import BounceBuffer, Buffer, Layout
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.state import tensor_reader
from kittrain.rank.snapshots.write import planning

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
    bounce=st.sampled_from([0, 1, 50, 4096]),
)
def test_replicated_tensors_are_written_once_and_read_back(
    *, state: dict[str, Tensor], ranks: int, main_only: bool, chunk: int, bounce: int
) -> None:
    """As a full copy, or through a bounce buffer of so many bytes."""
    pieces = planning.local_pieces(state)
    writers = range(1 if main_only else ranks)
    assigned = [planning.written_by(rank, pieces, writers) for rank in range(ranks)]
    assert sorted(piece.tensor for written in assigned for piece in written) == sorted(state)
    assert not main_only or not any(assigned[1:])
    with TemporaryDirectory() as folder, patch("kittrain.rank.snapshots.files.shards.CHUNK", chunk):
        opened = []
        for rank, written in enumerate(assigned):
            planned = Layout.of(written, state)
            path = Path(folder) / shards.name(rank)
            shard = shards.write(path, contents(planned, state, bounce), planned.pieces, {})
            opened.append(ShardFile(path, shard))
        found = tensor_reader.read_full(opened)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], one) and found[name].dtype == one.dtype for name, one in state.items())


def contents(planned: Layout, state: dict[str, Tensor], bounce: int) -> Iterable[memoryview]:
    if bounce:
        return BounceBuffer(planned, torch.ones(bounce, dtype=torch.uint8)).stream(state)
    part = Buffer(planned, torch.zeros(planned.size, dtype=torch.uint8))
    part.copy(state)
    return [part.data]


@pytest.fixture
def calls() -> Iterator[list[str]]:
    """The CUDA calls for a state on a GPU, in order; copies to pinned memory are asynchronous."""
    made: list[str] = []
    copy = Tensor.copy_

    def note(target: Tensor, source: Tensor, *, non_blocking: bool = False) -> Tensor:
        made.append("copy started" if non_blocking else "copied")
        return copy(target, source)

    with (
        patch.object(Tensor, "is_pinned", lambda _: True),
        patch.object(Tensor, "copy_", note),
        patch("torch.cuda.synchronize", lambda: made.append("synchronized")),
    ):
        yield made


def small_state() -> tuple[Layout, dict[str, Tensor]]:
    state = {"a": torch.ones(100), "b": torch.ones(100)}
    return Layout.of(planning.local_pieces(state), state), state


def test_nothing_is_written_before_a_gpu_has_copied_it(calls: list[str]) -> None:
    planned, state = small_state()
    Buffer(planned, torch.zeros(planned.size, dtype=torch.uint8)).copy(state)
    assert calls == ["copy started", "copy started", "synchronized"]


def test_the_bounce_buffer_waits_for_the_gpu_before_each_part(calls: list[str]) -> None:
    planned, state = small_state()
    for part in BounceBuffer(planned, torch.zeros(256, dtype=torch.uint8)).stream(state):
        calls.append(f"{len(part)} written")  # noqa: PERF401  between the calls that the generator makes
    copied = ["copy started", "synchronized", "256 written"]
    assert calls == [*copied, "copy started", *copied, *copied, "copy started", "synchronized", "80 written"]


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Tensor, list[int], ChunkStorageMetadata]:
    """A tensor, the rows that it is split at, and a box of it."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    whole = torch.arange(torch.Size(sizes).numel(), dtype=torch.int32).view(sizes)
    cuts = sorted(draw(st.lists(st.integers(0, sizes[0]), max_size=3)))
    starts = [draw(st.integers(0, size - 1)) for size in sizes]
    lengths = [draw(st.integers(1, size - start)) for size, start in zip(sizes, starts, strict=True)]
    return whole, cuts, ChunkStorageMetadata(torch.Size(starts), torch.Size(lengths))


@settings(deadline=None, max_examples=60)
@given(boxes(), st.sampled_from([7, 4096]), st.sampled_from([1, 20, 4096]))
def test_any_box_of_a_sharded_tensor_is_read(
    asked: tuple[Tensor, list[int], ChunkStorageMetadata], chunk: int, block_size: int
) -> None:
    whole, cuts, box = asked
    parts = [(low, whole[low:high]) for low, high in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    with TemporaryDirectory() as folder, patch("kittrain.rank.snapshots.files.shards.CHUNK", chunk):
        opened = [written(Path(folder), number, whole, *part) for number, part in enumerate(parts) if len(part[1])]
        metadata, locations = tensor_reader._index([shard.pieces for shard in opened])
        found = torch.full(box.sizes, -1, dtype=whole.dtype)
        for item in create_read_items_for_chunk_list("t", metadata.state_dict_metadata["t"], [box]):  # type: ignore[arg-type]
            target = found
            for dimension, (start, length) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
                target = target.narrow(dimension, start, length)
            number, piece = locations[item.storage_index]
            for block in blocks.blocks([tensor_reader._needed(piece, [item])], size=block_size):
                for rows in block.rows:
                    content = torch.frombuffer(opened[number].read(rows.start, rows.stop), dtype=torch.uint8)
                    tensor_reader._copy(tensor_reader.tensor_of(rows, content), rows, item, target)
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
    return ShardFile(path, shards.write(path, [memoryview(rows.numpy().tobytes())], [piece], {}))


def test_a_copy_of_what_is_trained_belongs_to_no_graph_and_does_not_follow() -> None:
    """Also of tensors that are not contiguous, of several types, and of one number."""
    weights = torch.nn.Parameter(torch.rand(3, 4))
    state = {"weights": weights, "turned": torch.rand(4, 3).t(), "count": torch.tensor(7), "mask": torch.ones(2) > 0}
    earlier = {name: tensor.detach().clone() for name, tensor in state.items()}
    planned = Layout.of(planning.local_pieces(state), state)
    buffer = Buffer(planned, torch.zeros(planned.size, dtype=torch.uint8))
    buffer.copy(state)
    assert [one.requires_grad for one in buffer._targets] == [False] * 4
    before = bytes(buffer.data)
    with torch.no_grad():
        weights.add_(1)
    assert bytes(buffer.data) == before
    for piece in planned.pieces:
        expected = earlier[piece.tensor]
        found = torch.frombuffer(bytearray(before[piece.start : piece.stop]), dtype=expected.dtype)
        assert torch.equal(found.view(piece.sizes), expected)
