"""The model file of a sharded run: by all ranks together, by rank 0 if the folder cannot do that, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from kittrain import World
from kittrain.rank.snapshots.files import file_part
from kittrain.rank.snapshots.files.file_part import Part
from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.fence import Fence, Fenced
from kittrain.rank.snapshots.state import model_file
from kittrain.rank.world.order import Cursor
from tests.trainer.rank.snapshots.write.test_planning import WRAPS, manager, run, trained, whole
from tests.trainer.sharded import skip_without_fsdp_on_cpus


def finish_in_each_way(world: World, folder: Path) -> None:
    state = trained(WRAPS["sharded"], world.size, seed=1)
    expected = {name.removeprefix("model/"): one for name, one in whole(state).items() if name.startswith("model/")}
    write, write_part = os.pwrite, file_part.write

    def on_one_rank(descriptor: int, content: memoryview, start: int) -> int:
        if world.rank == 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, content, start)

    def overtake(*given: Any) -> Part:
        if world.is_main:
            Fence(folder / "fenced").claim("another run")
        return write_part(*given)

    with manager(world, state, folder / "together") as saving:
        saving.restore()
        saving.commit(Cursor(0, 12), {})
        with patch.object(model_file, "stream", side_effect=AssertionError("rank 0 writes all of it")):
            saving.finish()
        check(world, folder / "together", expected)
        with patch.object(file_part, "is_there", return_value=False):
            (folder / "together" / "model.pt").unlink(missing_ok=True)
            saving.finish()
        check(world, folder / "together", expected)
    with manager(world, state, folder / "full") as saving:
        saving.restore()
        saving.commit(Cursor(0, 12), {})
        with patch("os.pwrite", on_one_rank), pytest.raises(SnapshotError, match=r"cannot be written to .*No space"):
            saving.finish()
        check(world, folder / "full", None)
        saving.finish()
        check(world, folder / "full", expected)
    with manager(world, state, folder / "fenced") as saving:
        saving.restore()
        saving.commit(Cursor(0, 12), {})
        with patch.object(file_part, "write", overtake), pytest.raises(Fenced):  # meanwhile
            saving.finish()
        check(world, folder / "fenced", None)
        with patch.object(file_part, "write", side_effect=AssertionError("too late")), pytest.raises(Fenced):
            saving.finish()
        check(world, folder / "fenced", None)


def check(world: World, folder: Path, expected: dict[str, torch.Tensor] | None) -> None:
    """Check the model file, and that nothing else is left."""
    world.barrier()
    if world.is_main:
        assert not list(folder.glob(".tmp-*"))
        assert (folder / "model.pt").exists() == (expected is not None)
    if world.is_main and expected:
        torch.testing.assert_close(torch.load(folder / "model.pt", weights_only=True), expected, rtol=0, atol=0)
    world.barrier()


@pytest.mark.slow
def test_the_model_file_is_whole_or_absent(tmp_path: Path) -> None:
    skip_without_fsdp_on_cpus()
    run(finish_in_each_way, tmp_path, size=3)
