"""A safetensors file, read back according to the format's specification, without the code that wrote it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from kittrain.rank.snapshots.state import safetensors, weights
from kittrain.rank.snapshots.state.safetensors import UnknownTypeError

NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"} | {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


def read(file: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors and metadata. The file: the header's length (8 bytes, little-endian), the header, the tensors' bytes."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    metadata = header.pop("__metadata__")
    data = file[8 + length :]
    end = 0
    tensors = {}
    for name, facts in header.items():
        begin, after = facts["data_offsets"]
        assert begin == end, "no holes"
        end = after
        tensors[name] = np.frombuffer(data[begin:after], NUMPY[facts["dtype"]]).reshape(facts["shape"])
    assert end == len(data), "nothing after the last tensor"
    assert (8 + length) % 8 == 0, "the data are aligned"
    return tensors, metadata


def test_tensors_are_read_back() -> None:
    tensors = {
        "matrix": torch.arange(6.0).reshape(2, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.zeros(0, 4),
        "flags": torch.tensor([True, False, True]),
        "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
    }
    found, metadata = read(b"".join(safetensors.stream(weights.of_model(tensors), {"step": "7"})))
    assert metadata == {"step": "7"}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(found[name], tensor.numpy())


def test_a_type_that_numpy_lacks_keeps_its_bytes() -> None:
    tensor = torch.tensor([1.0, -2.5, 3e5], dtype=torch.bfloat16)
    file = b"".join(safetensors.stream(weights.of_model({"x": tensor}), {}))
    assert json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])["x"]["dtype"] == "BF16"
    assert file[-6:] == tensor.view(torch.uint8).numpy().tobytes()


def test_a_type_that_the_format_lacks_is_an_error_before_a_byte_is_written() -> None:
    with pytest.raises(UnknownTypeError, match=r"x is torch\.complex64"):
        next(safetensors.stream(weights.of_model({"x": torch.zeros(1, dtype=torch.complex64)}), {}))
