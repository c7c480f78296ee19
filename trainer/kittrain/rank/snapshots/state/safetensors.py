"""Writes tensors as a safetensors file: the length of a header as 8 bytes, the header as JSON, then the tensors' bytes.

The format is that of https://github.com/huggingface/safetensors#format; nothing in such a file can be executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from kittrain.rank.snapshots.files.tree import PLACEHOLDER, tensor_names
from kittrain.rank.snapshots.state.weights import Weights
from kittrain.system.files import Buffer

ALIGNMENT: Final = 8  # of the first tensor's byte; the header is padded with spaces

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
    """The model has a value that the format cannot hold."""


def stream(weights: Weights, metadata: Mapping[str, str]) -> Iterator[Buffer]:
    """The file in parts: the header with ``metadata``, then each tensor.

    Raises:
        UnknownTypeError: the format cannot hold a value; raised before the first part.
        CorruptError: a tensor's bytes are damaged where they are read from.
        OSError: they cannot be read at the moment.
    """
    tensors = dict(_tensors(weights.tree))
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        shape, dtype = weights.structure[tensor]
        if dtype not in TYPES:
            raise UnknownTypeError(f"{name} is {dtype}, which a safetensors file cannot hold; export it as pt")
        begin, end = end, end + shape.numel() * dtype.itemsize
        header[name] = {"dtype": TYPES[dtype], "shape": [*shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        yield weights.content(tensor)


def _tensors(state_dict: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each key of the state dict, and the name of its tensor."""
    for name, value in state_dict.items():
        if not isinstance(value, str) or [value.removeprefix(PLACEHOLDER)] != tensor_names(value):
            raise UnknownTypeError(f"{name} is not a tensor; a safetensors file holds only tensors: export it as pt")
        yield name, value.removeprefix(PLACEHOLDER)
