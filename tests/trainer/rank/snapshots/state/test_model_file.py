"""A model file is in torch's format, and only one tensor is in memory at a time while it is written."""

from __future__ import annotations

import io
import weakref
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.state import model_file, safetensors, weights
from kittrain.rank.snapshots.state.weights import Weights
from tests.trainer import runs
from tests.trainer.saved import weights_of

TYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint16, torch.bool, torch.complex64)


def state() -> dict[str, Any]:
    """Tensors of all kinds: tied, scalar, empty, non-contiguous, of many types, and nested in other values."""
    model = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(4), nn.Linear(30, 40))
    model[2].weight = model[0].weight
    found = dict(model.state_dict(keep_vars=True))
    found |= {str(dtype): torch.tensor([1, 0, 1]).to(dtype) for dtype in TYPES}
    found |= {"empty": torch.zeros(0, 4), "last": torch.rand(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)}
    return found | {"0._extra_state": {"calls": 3, "seen": [torch.ones(2), "words"]}}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, one in expected.items():
        if isinstance(one, Tensor):
            assert (found[name].dtype, found[name].shape) == (one.dtype, one.shape)
            assert torch.equal(raw(found[name]), raw(one)), name
        else:
            assert repr(found[name]) == repr(one)


def raw(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("mapped", [False, True])
def test_torch_loads_it_and_ties_stay_tied(tmp_path: Path, *, mapped: bool) -> None:
    held, path = state(), tmp_path / "model.pt"
    path.write_bytes(b"".join(model_file.stream(weights.of_model(held))))
    found = torch.load(path, weights_only=True, mmap=mapped)
    assert_same(found, held)
    assert found["2.weight"].data_ptr() == found["0.weight"].data_ptr()
    if mapped:
        assert not any(one.data_ptr() % 64 for one in found.values() if isinstance(one, Tensor))


def test_it_is_a_valid_zip_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(b"".join(model_file.stream(weights.of_model(state()))))) as archive:
        assert archive.testzip() is None
        assert all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())


def test_it_is_what_torch_writes(tmp_path: Path) -> None:
    held, ours, theirs = state(), tmp_path / "ours" / "model.pt", tmp_path / "theirs" / "model.pt"
    for path in (ours, theirs):
        path.parent.mkdir()
    ours.write_bytes(b"".join(model_file.stream(weights.of_model(held))))
    torch.save({name: one.detach() if isinstance(one, Tensor) else one for name, one in held.items()}, theirs)
    with zipfile.ZipFile(ours) as mine, zipfile.ZipFile(theirs) as other:
        named = [record.filename for record in other.infolist()]
        assert [record.filename for record in mine.infolist()] == named
        differ = [name for name in named if mine.read(name) != other.read(name)]
    # Torch stores the strides of non-contiguous tensors, and a checksum of the file.
    assert set(differ) <= {"model/data.pkl", f"model/data/{len(held) - 3}", "model/.data/serialization_id"}


@pytest.mark.parametrize("form", [model_file.stream, lambda held: [*model_file.Frame.of(held).starts.items()]])
def test_it_is_the_same_wherever_temporary_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    """Torch gives the records other names in a file whose path is not ASCII."""
    held, made = state(), []
    for name in ("plain", 'it\'s "mine" %d é'):
        (tmp_path / name).mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
        made.append([*form(weights.of_model(held))])
    one, other = made
    if form is model_file.stream:
        one, other = (
            [record for record in _records(b"".join(parts)) if "serialization_id" not in record[0]] for parts in made
        )
    assert one == other


def _records(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


@pytest.mark.parametrize("form", [model_file.stream, lambda held: safetensors.stream(held, {})])
def test_one_tensor_at_a_time_is_in_memory(form: Any) -> None:
    alive: list[weakref.ref[Tensor]] = []

    def read(name: str) -> Tensor:
        assert not any(one() is not None for one in alive), "a written tensor is still in memory"
        made = torch.full((1000,), float(name))
        alive.append(weakref.ref(made))
        return made

    names = [str(number) for number in range(12)]  # as text, 10 and 11 precede 2, as in older torch's files
    held = Weights(
        tree={name: f"tensor/{name}" for name in names},
        structure={name: (torch.Size([1000]), torch.float32) for name in reversed(names)},
        read=read,
    )
    file = b""
    for piece in form(held):
        file += piece
        del piece
    assert len(alive) == 12
    if form is model_file.stream:
        found = torch.load(io.BytesIO(file), weights_only=True)
        assert all(bool((found[name] == float(name)).all()) for name in names)


def test_a_tensor_in_another_container_is_an_error() -> None:
    held = {"weight": torch.ones(2), "0._extra_state": {torch.ones(3)}}
    with pytest.raises(CorruptError, match="would store 2 tensors of 20 bytes, not the model's 1 of 8 bytes"):
        b"".join(model_file.stream(weights.of_model(held)))


def test_a_snapshots_weights_are_verified_when_they_are_read(tmp_path: Path) -> None:
    runs.run(tmp_path, 1)
    (path,) = tmp_path.glob("step-*")
    assert_same(weights_of(path), runs.WEIGHTS)
    held = weights.of_snapshot(path)
    runs.flip(path / "shard-00000.bin")
    with pytest.raises(CorruptError, match=r"shard-00000\.bin differs"):
        b"".join(model_file.stream(held))
