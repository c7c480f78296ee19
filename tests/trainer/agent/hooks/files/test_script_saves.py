"""A checkpoint in the node's own folder is noticed, whatever saves it; data, shared folders and caches are not."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import filesystem

from kitjob.variables import KIT_PRIVATE_FOLDER
from kittrain.agent.hooks.files import script_saves
from tests.trainer.hooked import run_warm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stored() -> list[int]:
    """An entry for each checkpoint that was saved anywhere."""
    return []


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: list[int]) -> Iterator[list[str]]:
    """What is saved, in a private folder with a link to a shared one; all functions are restored at the end."""
    private = tmp_path / "node"
    private.mkdir()
    (tmp_path / "shared").mkdir()
    (private / "link").symlink_to(tmp_path / "shared")
    monkeypatch.chdir(private)
    monkeypatch.setenv(KIT_PRIVATE_FOLDER, str(private))
    for owner, name in ((torch, "save"), (torch.serialization, "save"), (os, "replace"), (os, "rename")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for writer in filesystem.FileSystemWriter.__mro__:
        if "write_data" in vars(writer):
            monkeypatch.setattr(writer, "write_data", vars(writer)["write_data"])
    supported = os.supports_dir_fd.copy()
    seen: list[str] = []
    script_saves.watch(seen.append, lambda: stored.append(len(seen)))
    yield seen
    os.supports_dir_fd.clear()
    os.supports_dir_fd.update(supported)


def test_what_is_saved_anywhere_counts_but_not_in_memory(seen: list[str], stored: list[int], tmp_path: Path) -> None:
    torch.save({}, __import__("io").BytesIO())
    assert stored == []
    torch.save({}, tmp_path / "a.pt")
    torch.save({}, ".hidden.pt")
    with Path("link/b").open("wb") as file:
        torch.save({}, file)
    dcp.save({"a": torch.ones(1)}, checkpoint_id="link/folder")
    assert len(stored) == 4
    Path("c").touch()
    Path("c").rename("link/c.txt")
    assert len(stored) == 4
    assert seen == []


def test_each_way_to_save_to_the_own_folder_is_seen(seen: list[str]) -> None:
    torch.save({}, "a.bin")
    torch.save({}, Path("b.pt"))
    torch.save(obj={}, f=Path.cwd() / "c d.pt")
    with Path("d").open("wb") as file:
        torch.serialization.save({}, file)
    dcp.save({"a": torch.ones(1)}, checkpoint_id="folder")
    Path("e.tmp").touch()
    Path("e.tmp").replace("e.ckpt")
    os.rename("e.ckpt", dst="f.pth")  # noqa: PTH104 - a script's way
    shutil.move("f.pth", "g.safetensors")
    assert [*dict.fromkeys(seen)] == ["a.bin", "b.pt", "c d.pt", "d", "folder", "e.ckpt", "f.pth", "g.safetensors"]


def test_what_others_see_and_what_is_no_checkpoint_is_not(
    seen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = __import__("io").BytesIO()
    torch.save({}, buffer)
    torch.save({}, "link/a.pt")
    torch.save({}, tmp_path / "a.pt")
    Path(".cache").mkdir()
    torch.save({}, ".cache/weights.pt")
    Path("log.tmp").touch()
    Path("log.tmp").rename("log.txt")
    Path("b.tmp").touch()
    Path("b.tmp").replace("link/b.pt")
    with pytest.raises(FileNotFoundError):
        Path("none").replace("none.pt")
    with pytest.raises((RuntimeError, OSError)):
        torch.save({}, "none/a.pt")
    monkeypatch.delenv(KIT_PRIVATE_FOLDER)
    torch.save({}, "a.pt")
    assert seen == []


@pytest.mark.usefixtures("seen")
def test_renames_stay_what_they_are() -> None:
    assert pickle.loads(pickle.dumps(os.replace)) is os.replace
    assert os.rename in os.supports_dir_fd


@pytest.mark.slow
def test_the_first_checkpoint_after_the_first_step_is_named(tmp_path: Path) -> None:
    script = """
    import torch
    torch.save({}, "data.pt")
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    optimizer.step()
    torch.save({}, "first.pt")
    torch.save({}, "second.pt")
    """
    assert run_warm(tmp_path, script, **{KIT_PRIVATE_FOLDER: str(tmp_path)}).files.saved == "first.pt"


@pytest.mark.slow
def test_what_a_rank_goes_on_from_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    script = f"""
    import os, torch
    torch.save({{"a": 1}}, "node/old.pt")
    os.utime("node/old.pt", (5, 5))
    torch.save({{"a": 2}}, "node/new.pt")
    torch.load("node/new.pt")
    torch.load("node/old.pt")
    os.environ.pop("{KIT_PRIVATE_FOLDER}")
    """
    file = run_warm(tmp_path, script, **{KIT_PRIVATE_FOLDER: str(tmp_path / "node")}).files.loaded
    assert file
    assert (file.name, file.private) == ("new.pt", True)
    assert file.digest
    assert 0 <= file.age < 600
