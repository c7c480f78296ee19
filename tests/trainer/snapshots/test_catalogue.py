"""What a person is told about a folder of snapshots, and what may be deleted from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.snapshots import catalogue
from kittrain.snapshots.catalogue import CatalogueError
from tests.trainer import runs


def told(folder: Path, *, thorough: bool = False) -> dict[str, tuple[str, str]]:
    return {one.path.name: (one.condition, one.reason) for one in catalogue.everything(folder, thorough=thorough)}


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    assert catalogue.everything(tmp_path / "absent") == []


def test_the_newest_comes_first_a_later_generation_before_a_later_step(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 7)
    runs.run(tmp_path, 3, 4, generation=2)
    (tmp_path / "model.pt").touch()
    found = [(one.generation, one.step) for one in catalogue.everything(tmp_path)]
    assert found == [(2, 4), (2, 3), (1, 7), (1, 2)]


def test_each_is_shown_as_what_it_is(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4, 5, 6)
    whole, cut, absent, unsigned, foreign, aside = sorted(tmp_path.glob("step-*"))
    (cut / "shard-00000.bin").write_bytes(b"short")
    (absent / "shard-00000.bin").unlink()
    (unsigned / "manifest.json").write_text("{}")
    runs.resign(foreign, format=99)
    bad = aside.rename(aside.with_name(f"bad-{aside.name}"))
    scratch = tmp_path / ".tmp-step-00000007-g0001"
    scratch.mkdir()
    found = told(tmp_path)
    assert found[whole.name] == ("whole", "")
    assert found[cut.name][0] == found[absent.name][0] == found[unsigned.name][0] == found[bad.name][0] == "damaged"
    assert "5 bytes instead of" in found[cut.name][1]
    assert "shard-00000.bin is missing" in found[absent.name][1]
    assert "not readable" in found[unsigned.name][1]
    assert "put aside" in found[bad.name][1]
    assert found[foreign.name][0] == "foreign"
    assert "format 99" in found[foreign.name][1]
    assert found[scratch.name][0] == "unfinished"


def test_one_changed_bit_is_seen_by_whoever_looks_thoroughly(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2)
    first, second = sorted(tmp_path.glob("step-*"))
    runs.flip(first / "shard-00000.bin")
    assert {condition for condition, _ in told(tmp_path).values()} == {"whole"}
    found = told(tmp_path, thorough=True)
    assert found[second.name] == ("verified", "")
    condition, cause = found[first.name]
    assert condition == "damaged"
    assert "shard-00000.bin" in cause
    bad = first.rename(first.with_name(f"bad-{first.name}"))
    assert told(tmp_path, thorough=True)[bad.name] == ("damaged", cause), "for one that was put aside, too"


def test_a_snapshot_is_picked_by_step_or_name_and_the_newest_good_one_by_default(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 5)
    runs.run(tmp_path, 2, 3, generation=2)
    (tmp_path / "step-00000003-g0002" / "shard-00000.bin").unlink()
    found = catalogue.everything(tmp_path)
    assert catalogue.pick(found, None).path.name == "step-00000002-g0002"
    assert catalogue.pick(found, "2").path.name == "step-00000002-g0002", "the newer generation's"
    assert catalogue.pick(found, "5").path.name == "step-00000005-g0001"
    assert catalogue.pick(found, "step-00000002-g0001").generation == 1, "by its name"
    assert catalogue.pick(found, "3").condition == "damaged", "whoever asks for it is told"
    with pytest.raises(CatalogueError, match="no snapshot '4' that could be used; steps with one: 2, 5, 2"):
        catalogue.pick(found, "4")
    with pytest.raises(CatalogueError, match="steps with one: none"):
        catalogue.pick([], None)


def test_of_one_step_a_good_snapshot_is_picked_before_a_newer_damaged_one(tmp_path: Path) -> None:
    runs.run(tmp_path, 3)
    runs.run(tmp_path, 3, generation=2)
    (tmp_path / "step-00000003-g0002" / "shard-00000.bin").unlink()
    assert catalogue.pick(catalogue.everything(tmp_path), "3").generation == 1


def names(found: list[catalogue.Kept]) -> list[str]:
    return [f"{one.step}" for one in found]


def test_what_is_older_than_the_newest_good_ones_may_go(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4)
    found = catalogue.everything(tmp_path, thorough=True)
    assert names(catalogue.superfluous(found, 1)) == ["3", "2", "1"]
    assert names(catalogue.superfluous(found, 3)) == ["1"]
    assert names(catalogue.superfluous(found, 4)) == names(catalogue.superfluous(found, 9)) == []
    with pytest.raises(CatalogueError, match="at least"):
        catalogue.superfluous(found, 0)


def test_damaged_ones_do_not_count_as_kept_and_go_only_if_asked(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3, 4)
    runs.flip(tmp_path / "step-00000004-g0001" / "shard-00000.bin")
    (tmp_path / ".tmp-step-00000005-g0001").mkdir()
    found = catalogue.everything(tmp_path, thorough=True)
    assert names(catalogue.superfluous(found, 2)) == ["1"]
    assert names(catalogue.superfluous(found, 2, damaged=True)) == ["1", "4"]


def test_only_what_may_go_is_deleted_and_all_of_it_or_nothing(tmp_path: Path) -> None:
    first, second, third = (one.name for one in runs.run(tmp_path, 1, 2, 3))
    found = catalogue.everything(tmp_path, thorough=True)
    with pytest.raises(CatalogueError, match=f"{third} must stay"):
        catalogue.drop(found, [first, third], keep=1, damaged=False)
    assert names(catalogue.everything(tmp_path)) == ["3", "2", "1"]
    assert names(catalogue.drop(found, [first], keep=1, damaged=False)) == ["1"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [second, third]
