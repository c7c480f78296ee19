"""Inspecting a folder of snapshots, and which snapshots may be deleted."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from kitjob import timeline
from kittrain.rank.snapshots.folder import catalogue
from kittrain.rank.snapshots.folder.catalogue import CatalogueError
from tests.trainer import runs


def conditions(folder: Path, *, verify: bool = False) -> dict[str, tuple[str, str]]:
    return {one.path.name: (one.condition, one.reason) for one in catalogue.inspect_all(folder, verify=verify)}


def test_an_absent_folder_has_no_snapshots(tmp_path: Path) -> None:
    assert catalogue.inspect_all(tmp_path / "absent") == []


def test_order_is_by_generation_then_step_newest_first(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 7)
    runs.run(tmp_path, 3, 4, generation=2)
    (tmp_path / "model.pt").touch()
    found = [(one.generation, one.step) for one in catalogue.inspect_all(tmp_path)]
    assert found == [(2, 4), (2, 3), (1, 7), (1, 2)]


@pytest.mark.parametrize("verify", [False, True])
def test_one_that_a_run_deletes_meanwhile_is_left_out_where_links_show_the_folders_of_nodes(
    tmp_path: Path, *, verify: bool
) -> None:
    (node := tmp_path / "node-0").mkdir()
    runs.run(node, 1, 2)
    for path in node.glob("step-*"):
        (shown := tmp_path / "as-one" / path.name).mkdir(parents=True)
        for file in path.iterdir():
            (shown / file.name).symlink_to(file)
    old, new = sorted(node.glob("step-*"))
    shutil.rmtree(old)
    assert [*conditions(tmp_path / "as-one", verify=verify)] == [new.name]


def test_each_condition_is_recognized(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4, 5, 6)
    whole, short, absent, unsigned, foreign, quarantined = sorted(tmp_path.glob("step-*"))
    (short / "shard-00000.bin").write_bytes(b"short")
    (absent / "shard-00000.bin").unlink()
    (unsigned / "manifest.json").write_text("{}")
    runs.resign(foreign, format=99)
    bad = quarantined.rename(quarantined.with_name(f"bad-{quarantined.name}"))
    scratch = tmp_path / ".tmp-step-00000007-g0001"
    scratch.mkdir()
    found = conditions(tmp_path)
    assert found[whole.name] == ("whole", "")
    assert found[short.name][0] == found[absent.name][0] == found[unsigned.name][0] == found[bad.name][0] == "damaged"
    assert "5 bytes instead of" in found[short.name][1]
    assert "shard-00000.bin is missing" in found[absent.name][1]
    assert "not readable" in found[unsigned.name][1]
    assert "quarantined" in found[bad.name][1]
    assert found[foreign.name][0] == "foreign"
    assert "format 99" in found[foreign.name][1]
    assert found[scratch.name][0] == "unfinished"


def test_verify_finds_one_changed_bit(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2)
    first, second = sorted(tmp_path.glob("step-*"))
    runs.flip(first / "shard-00000.bin")
    assert {condition for condition, _ in conditions(tmp_path).values()} == {"whole"}
    found = conditions(tmp_path, verify=True)
    assert found[second.name] == ("verified", "")
    condition, cause = found[first.name]
    assert condition == "damaged"
    assert "shard-00000.bin" in cause
    bad = first.rename(first.with_name(f"bad-{first.name}"))
    assert conditions(tmp_path, verify=True)[bad.name] == ("damaged", cause), "for a quarantined one, too"


def test_pick_by_step_or_name_and_the_newest_good_one_by_default(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 5)
    runs.run(tmp_path, 2, 3, generation=2)
    (tmp_path / "step-00000003-g0002" / "shard-00000.bin").unlink()
    found = catalogue.inspect_all(tmp_path)
    assert catalogue.pick(found, None).path.name == "step-00000002-g0002"
    assert catalogue.pick(found, "2").path.name == "step-00000002-g0002", "the newer generation's"
    assert catalogue.pick(found, "5").path.name == "step-00000005-g0001"
    assert catalogue.pick(found, "step-00000002-g0001").generation == 1, "by its name"
    assert catalogue.pick(found, "3").condition == "damaged", "if it is requested explicitly"
    with pytest.raises(CatalogueError, match="no snapshot '4'; steps with a usable one: 2, 5, 2"):
        catalogue.pick(found, "4")
    with pytest.raises(CatalogueError, match="steps with a usable one: none"):
        catalogue.pick([], None)


def test_pick_prefers_a_good_snapshot_of_a_step(tmp_path: Path) -> None:
    runs.run(tmp_path, 3)
    runs.run(tmp_path, 3, generation=2)
    (tmp_path / "step-00000003-g0002" / "shard-00000.bin").unlink()
    assert catalogue.pick(catalogue.inspect_all(tmp_path), "3").generation == 1


def steps(found: list[catalogue.SnapshotInfo]) -> list[str]:
    return [f"{one.step}" for one in found]


def test_snapshots_older_than_the_newest_good_ones_are_prunable(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4)
    found = catalogue.inspect_all(tmp_path, verify=True)
    assert steps(catalogue.prunable(found, 1)) == ["3", "2", "1"]
    assert steps(catalogue.prunable(found, 3)) == ["1"]
    assert steps(catalogue.prunable(found, 4)) == steps(catalogue.prunable(found, 9)) == []
    with pytest.raises(CatalogueError, match="at least"):
        catalogue.prunable(found, 0)


def test_the_newest_finite_snapshot_is_never_prunable(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4, 5)
    for step in (3, 4, 5):
        runs.resign(tmp_path / f"step-0000000{step}-g0001", not_finite="the loss is nan")
    assert steps(catalogue.prunable(catalogue.inspect_all(tmp_path, verify=True), 1)) == ["4", "3", "1"]
    assert steps(catalogue.prunable(catalogue.inspect_all(tmp_path, verify=True), 4)) == ["1"]
    with pytest.raises(CatalogueError, match="step-00000002-g0001 cannot be deleted"):
        catalogue.delete(catalogue.inspect_all(tmp_path, verify=True), ["step-00000002-g0001"], keep=1, damaged=False)
    runs.flip(tmp_path / "step-00000002-g0001" / "shard-00000.bin")  # which leaves the one before it
    assert steps(catalogue.prunable(catalogue.inspect_all(tmp_path, verify=True), 1)) == ["4", "3"]


def test_damaged_snapshots_do_not_count_and_are_prunable_only_on_request(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4)
    runs.flip(tmp_path / "step-00000004-g0001" / "shard-00000.bin")
    (tmp_path / ".tmp-step-00000005-g0001").mkdir()
    found = catalogue.inspect_all(tmp_path, verify=True)
    assert steps(catalogue.prunable(found, 2)) == ["1"]
    assert steps(catalogue.prunable(found, 2, damaged=True)) == ["1", "4"]


def test_delete_refuses_all_if_one_is_not_prunable(tmp_path: Path) -> None:
    first, second, third = (one.name for one in runs.run(tmp_path, 1, 2, 3))
    found = catalogue.inspect_all(tmp_path, verify=True)
    with pytest.raises(CatalogueError, match=f"{third} cannot be deleted"):
        catalogue.delete(found, [first, third], keep=1, damaged=False)
    assert steps(catalogue.inspect_all(tmp_path)) == ["3", "2", "1"]
    assert steps(catalogue.delete(found, [first], keep=1, damaged=False)) == ["1"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [second, third]


def test_histories_go_with_the_snapshots_of_their_run(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2)
    step, _ = catalogue.inspect_all(tmp_path)
    assert step.manifest
    for age, name in enumerate([step.manifest.run, "gone", "newest"]):
        folder = tmp_path / timeline.FOLDER / name
        (folder / "node-0").mkdir(parents=True)
        os.utime(folder, (age, age))
    broken = dataclasses.replace(step, manifest=None)
    assert catalogue.delete_histories(tmp_path, [step, broken]) == []
    assert catalogue.delete_histories(tmp_path, [step]) == ["gone"]
    assert catalogue.delete_histories(tmp_path, []) == [step.manifest.run]
    assert [one.name for one in (tmp_path / timeline.FOLDER).iterdir()] == ["newest"]
    assert catalogue.delete_histories(tmp_path / "absent", []) == []
