"""Tensors as a safetensors file: the length of a header as 8 bytes, the header as JSON, then each tensor's bytes.

The format is that of https://github.com/huggingface/safetensors#format; nothing in such a file can be executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from kittrain.snapshots.tree import PLACE, places
from kittrain.snapshots.weights import Weights
from kittrain.system.files import Buffer

ALIGNMENT: Final = 8  # of the first tensor's byte, by spaces behind the header

TYPES: Final = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


class UnknownTypeError(ValueError):
    """The format cannot hold something that the model has."""


def pieces(weights: Weights, notes: Mapping[str, str]) -> Iterator[Buffer]:
    """The file, piece by piece: the header with ``notes`` as its metadata, then a piece for each tensor.

    Raises:
        UnknownTypeError: the format cannot hold it; raised before the first piece.
        CorruptError: a tensor's bytes are damaged where they are read from.
        OSError: they cannot be read at the moment.
    """
    named = dict(_named(weights.tree))
    header: dict[str, object] = {"__metadata__": dict(notes)}
    end = 0
    for name, place in named.items():
        shape, dtype = weights.structure[place]
        if dtype not in TYPES:
            raise UnknownTypeError(f"{name} is {dtype}, which a safetensors file cannot hold; export it as pt")
        begin, end = end, end + shape.numel() * dtype.itemsize
        header[name] = {"dtype": TYPES[dtype], "shape": [*shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for place in named.values():
        yield weights.content(place)


def _named(held: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each name of the state dict, and that of its tensor."""
    for name, value in held.items():
        if not isinstance(value, str) or [value.removeprefix(PLACE)] != places(value):
            raise UnknownTypeError(f"{name} is no tensor, and a safetensors file holds nothing else; export it as pt")
        yield name, value.removeprefix(PLACE)
