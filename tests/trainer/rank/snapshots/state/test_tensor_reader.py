"""A snapshot is restored on any number of ranks, with a replicated or a sharded state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder.snapshot import verify
from kittrain.rank.snapshots.state import tensor_reader
from tests.trainer import runs
from tests.trainer.saved import weights_of
from tests.trainer.sharded import Kind, run


def newest(folder: Path) -> dict[str, Tensor]:
    path = max(folder.glob("step-*"), key=lambda path: path.name)
    assert verify(path).step == int(path.name[5:13])
    return tensor_reader.load_full(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "worlds",
    [
        [(2, "sharded"), (3, "sharded"), (1, "replicated")],
        pytest.param([(2, "replicated"), (3, "sharded"), (2, "sharded")], marks=pytest.mark.wide),
        pytest.param([(3, "replicated"), (2, "replicated"), (1, "sharded")], marks=pytest.mark.wide),
    ],
)
def test_any_world_resumes_from_any_others_snapshot(tmp_path: Path, worlds: list[tuple[int, Kind]]) -> None:
    straight, changing = tmp_path / "straight" / "snapshots", tmp_path / "changing" / "snapshots"
    for folder in (straight, changing):
        folder.mkdir(parents=True)
    for epoch, (size, kind) in enumerate(worlds, start=1):
        assert run([changing] * size, kind, epoch, name=f"run-{epoch}") == [0] * size
        assert run([straight], "replicated", epoch, name=f"run-{epoch}") == [0]
        expected, found = newest(straight), newest(changing)
        assert sorted(found) == sorted(expected)
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, msg=name)


def test_exported_weights_are_verified(tmp_path: Path) -> None:
    runs.run(tmp_path, 1)
    (path,) = tmp_path.glob("step-*")
    weights = weights_of(path)
    assert weights.keys() == runs.WEIGHTS.keys()
    assert torch.equal(weights["weight"], runs.WEIGHTS["weight"])
    runs.flip(path / "shard-00000.bin")
    with pytest.raises(CorruptError, match=r"shard-00000\.bin differs"):
        weights_of(path)
