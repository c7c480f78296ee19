"""The time of the newest file that a script loads at its start is recorded, whatever loads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from kittrain.agent.hooks.files import script_loads
from tests.trainer.hooked import run, run_warm


@pytest.mark.slow
def test_the_time_of_a_file_loaded_before_the_second_step_is_recorded(tmp_path: Path) -> None:
    script = """
    import os, torch
    from pathlib import Path
    for name, seconds in (("old", 5), ("new", 7), ("newest", 9)):
        torch.save({"a": torch.ones(2)}, name)
        os.utime(name, (seconds, seconds))
    with open("old", "rb") as opened:
        torch.load(opened)
    with open("new", "rb") as opened:
        buffer = __import__("io").BytesIO(opened.read())
    assert torch.load(buffer)["a"].tolist() == [1, 1]
    torch.load(Path("new"), weights_only=True)
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    optimizer.step()
    optimizer.step()
    torch.load(f="newest")
    assert torch.load is torch.serialization.load
    """
    assert run_warm(tmp_path, script).loaded == 7_000_000_000


@pytest.mark.wide
@pytest.mark.slow
def test_a_distributed_checkpoint_is_recorded_and_the_hooks_import_nothing(tmp_path: Path) -> None:
    script = """
    import os, sys, torch
    assert not {"safetensors", "torch.distributed.checkpoint.filesystem"} & set(sys.modules)
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())
    weights, moments = get_state_dict(model, optimizer)  # takes a step
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id="folder")
    os.utime("folder/.metadata", (7, 7))
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id="folder")
    """
    seen = run(tmp_path, script)
    assert (seen.loaded, seen.step) == (7_000_000_000, 1)


def test_functions_imported_earlier_are_wrapped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((torch, "load"), (torch.serialization, "load"), (dcp.FileSystemReader, "read_metadata")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # restored at the end
    seen: list[int] = []
    script_loads.watch(lambda changed, _file: seen.append(changed))
    torch.save({}, tmp_path / "file")
    os.utime(tmp_path / "file", (3, 3))
    torch.load(tmp_path / "file")
    torch.serialization.load(tmp_path / "file")
    state = {"a": torch.ones(2)}
    dcp.save(state, checkpoint_id=tmp_path / "folder")
    os.utime(tmp_path / "folder" / ".metadata", (4, 4))
    dcp.load(state, checkpoint_id=tmp_path / "folder")
    assert set(seen) == {3_000_000_000, 4_000_000_000}
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "none")
    with pytest.raises(TypeError):
        torch.load(*[])
