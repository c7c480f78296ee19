"""NaN and infinity are found in the bytes of a shard, however these are split."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kittrain.rank.snapshots.files import finite
from kittrain.rank.snapshots.files.finite import FiniteCheck, kind_of_largest
from kittrain.rank.snapshots.files.layout import Layout
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.write import planning

TYPES = [getattr(torch, name) for name in finite.FORMATS]
LARGEST = [torch.finfo(dtype).max for dtype in TYPES]


def data_of(tensor: Tensor) -> memoryview:
    data: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return data


def kind(tensor: Tensor) -> str:
    return kind_of_largest(data_of(tensor), str(tensor.dtype).removeprefix("torch."))


@pytest.mark.parametrize(("dtype", "largest"), list(zip(TYPES, LARGEST, strict=True)), ids=str)
def test_each_format_is_told_apart(dtype: torch.dtype, largest: float) -> None:
    for others in ([], [1.0], [-1.0], [0.0, 3.0, -2.0], [largest, -largest, -0.0]):
        assert kind(torch.tensor([0.0, *others], dtype=dtype)) == ""
        for value in (math.inf, -math.inf):
            assert kind(torch.tensor([*others, value], dtype=dtype)) == "inf"
        for value in (math.nan, -math.nan):
            assert kind(torch.tensor([math.inf, *others, value, -math.inf], dtype=dtype)) == "nan"


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1), st.integers(1, 5))
def test_it_finds_what_torch_finds_in_parts_of_any_size(values: list[float], size: int) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    planned = Layout.of(planning.local_pieces({"first": torch.ones(3), "w": tensor}), {"w": tensor.requires_grad_()})
    data = bytearray(planned.size)
    first, piece = planned.pieces
    data[first.start : first.stop] = data_of(torch.ones(3))
    data[piece.start : piece.stop] = data_of(tensor.detach())
    check = FiniteCheck(planned.pieces, planned.trained)
    for start in range(0, len(data), 4 * size):
        check.add(memoryview(data)[start : start + 4 * size])
    assert bool(check.problem) == (not torch.isfinite(tensor).all())
    assert check.problem in {"", "w has nan", "w has inf"}


def test_infinity_is_found_only_where_it_is_trained() -> None:
    tensors = {"mask": torch.full((3,), -math.inf), "count": torch.tensor([2**62]), "w": torch.tensor([1.0])}
    pieces = [_piece(name, tensor) for name, tensor in tensors.items()]
    assert problem(pieces, tensors, trained="w") == ""
    assert problem(pieces, tensors, trained="mask") == "mask has inf"
    assert problem(pieces, tensors | {"mask": torch.tensor([0, math.nan, 0])}, trained="w") == "mask has nan"


def problem(pieces: list[Piece], tensors: dict[str, Tensor], *, trained: str) -> str:
    planned = Layout.of(pieces, {})
    check = FiniteCheck(planned.pieces, {trained})
    for before, piece in zip([None, *planned.pieces], planned.pieces, strict=False):
        check.add(memoryview(b"\xff" * (piece.start - (before.stop if before else 0))))  # gaps may hold anything
        check.add(data_of(tensors[piece.tensor]))
    return check.problem


def _piece(name: str, tensor: Tensor) -> Piece:
    (piece,) = planning.local_pieces({name: tensor})
    return replace(piece, tensor=name)
