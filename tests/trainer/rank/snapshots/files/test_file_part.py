"""Boxes of tensors, written by several ranks, make up a model file that torch loads."""

from __future__ import annotations

import zipfile
from functools import reduce
from itertools import pairwise
from operator import xor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from kittrain.rank.snapshots.files import file_part
from kittrain.rank.snapshots.files.file_part import Part, Probe
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.state import model_file, weights
from kittrain.rank.snapshots.state.model_file import Frame
from kittrain.system import files

Boxes = list[tuple[Piece, Tensor]]


def boxes_of(name: str, whole: Tensor, cuts: list[list[int]]) -> Boxes:
    """A tensor, cut along each dimension."""
    found: Boxes = [(_piece(name, whole, [0] * whole.dim(), list(whole.shape)), whole)]
    for dimension, at in enumerate(cuts):
        edges = sorted({0, whole.shape[dimension], *(cut for cut in at if cut < whole.shape[dimension])})
        divided: Boxes = []
        for piece, _ in found:
            for start, stop in pairwise(edges):
                offsets, sizes = [*piece.offsets], [*piece.sizes]
                offsets[dimension], sizes[dimension] = start, stop - start
                part = whole[tuple(slice(low, low + size) for low, size in zip(offsets, sizes, strict=True))]
                divided.append((_piece(name, whole, offsets, sizes), part))
        found = divided or found
    return found


def _piece(name: str, whole: Tensor, offsets: list[int], sizes: list[int]) -> Piece:
    box = {"shape": tuple(whole.shape), "offsets": tuple(offsets), "sizes": tuple(sizes)}
    size = torch.Size(sizes).numel() * whole.element_size()
    return Piece(tensor=name, dtype=str(whole.dtype).removeprefix("torch."), start=64, stop=64 + size, **box)


def write(folder: Path, held: dict[str, Any], ranks: list[Boxes]) -> tuple[Path, list[Part]]:
    """As the ranks of a world and then rank 0 write it."""
    frame, path = Frame.of(weights.of_model(held)), folder / "model.pt"
    with path.open("wb") as file:
        file.truncate(frame.end)
    parts = []
    for boxes in ranks:
        content = {piece: part.contiguous().reshape(-1).view(torch.uint8).numpy().data for piece, part in boxes}
        parts.append(file_part.write(path, content, frame.starts, content.__getitem__))
    sums = {name: reduce(xor, (part.checksums.get(name, 0) for part in parts)) for name in frame.starts}
    files.write_at(path, frame.parts(sums))
    return path, parts


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 7), max_size=4),
    cuts=st.lists(st.lists(st.integers(1, 6), max_size=2), min_size=4, max_size=4),
    ranks=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.uint8, torch.complex128]),
)
def test_boxes_of_any_shape_make_up_the_file(
    sizes: list[int], cuts: list[list[int]], ranks: int, dtype: torch.dtype
) -> None:
    whole = (torch.arange(torch.Size(sizes).numel()) % 251).to(dtype).view(sizes)
    held = {"w": whole, "empty": torch.zeros(0, 3), "b": torch.tensor([1.5, 2.5]), "count": torch.tensor(7)}
    boxes = boxes_of("w", whole, cuts[: len(sizes)])
    shares = [boxes[rank::ranks] for rank in range(ranks)]
    shares[-1] += [*boxes_of("b", held["b"], [[1]]), *boxes_of("count", held["count"], [])]
    with TemporaryDirectory() as folder:
        path, _ = write(Path(folder), held, shares)
        found = torch.load(path, weights_only=True)
        torch.testing.assert_close(found, held, rtol=0, atol=0)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None


def test_it_has_what_a_file_of_one_writer_has(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Linear(30, 40))
    model[2].weight = model[0].weight
    held: dict[str, Any] = dict(model.state_dict(keep_vars=True)) | {"0._extra_state": {"calls": 3}}
    boxes = [
        box
        for name, one in held.items()
        if isinstance(one, Tensor) and name != "2.weight"
        for box in boxes_of(name, one.detach(), [])
    ]
    path, _ = write(tmp_path, held, [boxes])
    alone = tmp_path / "alone.pt"
    alone.write_bytes(b"".join(model_file.stream(weights.of_model(held))))
    with zipfile.ZipFile(path) as mine, zipfile.ZipFile(alone) as other:
        assert [one.filename for one in mine.infolist()] == [one.filename for one in other.infolist()]
        assert [mine.read(one) for one in mine.namelist()] == [other.read(one) for one in other.namelist()]
    found = torch.load(path, weights_only=True, mmap=True)
    assert found["2.weight"].data_ptr() == found["0.weight"].data_ptr()
    assert not any(one.data_ptr() % 64 for one in found.values() if isinstance(one, Tensor))


def test_what_another_has_lost_is_noticed(tmp_path: Path) -> None:
    held = {"w": torch.arange(3000.0)}
    path, [part] = write(tmp_path, held, [boxes_of("w", held["w"], [])])
    assert part.probe
    assert file_part.is_there(path, part.probe)
    with path.open("r+b") as file:
        file.seek(part.probe.start)
        file.write(bytes(part.probe.size))
    assert not file_part.is_there(path, part.probe)
    assert not file_part.is_there(path, Probe(start=1 << 20, size=10, checksum=1)), "after the end"


def test_a_file_that_another_generation_has_deleted_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_part.write(tmp_path / "gone", [], {}, lambda _: memoryview(b""))
    assert not list(tmp_path.iterdir())
