"""Tensors as a safetensors file: the length of a header as 8 bytes, the header as JSON, then each tensor's bytes.

The format is that of https://github.com/huggingface/safetensors#format; nothing in such a file can be executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

import torch

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
    """The format has no name for a tensor's type."""


def pieces(tensors: Mapping[str, torch.Tensor], notes: Mapping[str, str]) -> Iterator[bytes]:
    """The file, piece by piece: the header with ``notes`` as its metadata, then a piece for each tensor.

    Raises:
        UnknownTypeError: a tensor's type cannot be written.
    """
    header: dict[str, object] = {"__metadata__": dict(notes)}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in TYPES:
            raise UnknownTypeError(f"{name} is {tensor.dtype}, which a safetensors file cannot hold; export it as pt")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        # Flat first: a scalar cannot be seen as bytes.
        yield tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
