"""The folders of all nodes are shown as one."""

from __future__ import annotations

import json
from pathlib import Path

from kitctl.targets.local import node_folders


def write(node: Path, snapshot: str, *numbers: int, total: int = 2, digest: str = "a") -> None:
    folder = node / snapshot
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"shards": [{}] * total, "digest": digest}))
    for number in numbers:
        (folder / f"shard-{number:05}.bin").write_text(f"{node.name} {number}")


def test_a_snapshot_has_the_shards_of_all_nodes(tmp_path: Path) -> None:
    write(tmp_path / "node-0", "step-1", 0)
    write(tmp_path / "node-1", "step-1", 0, 1)
    (tmp_path / "node-1" / "model.pt").write_text("model")
    assert node_folders.are_there(tmp_path)
    with node_folders.as_one(tmp_path) as merged:
        assert {path.name for path in merged.iterdir()} == {"step-1", "model.pt"}
        assert (merged / "step-1" / "shard-00000.bin").read_text() == "node-0 0"
        assert (merged / "step-1" / "shard-00001.bin").read_text() == "node-1 1"
    assert not merged.exists()
    assert (tmp_path / "node-1" / "step-1" / "shard-00001.bin").exists()


def test_what_is_not_whole_is_left_out_and_two_writings_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "node-0", "step-1", 0)
    write(tmp_path / "node-0", "step-2", 0, digest="a")
    write(tmp_path / "node-1", "step-2", 1, digest="b")
    with node_folders.as_one(tmp_path) as merged:
        assert not list(merged.iterdir())


def test_a_shared_folder_is_none(tmp_path: Path) -> None:
    write(tmp_path, "step-1", 0)
    assert not node_folders.are_there(tmp_path)
    assert not node_folders.are_there(tmp_path / "none")
