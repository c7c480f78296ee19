"""Which snapshot a run resumes from, what happens to the others, and when it may start from scratch."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.fence import Fence
from kittrain.system.storage import StorageUnavailableError
from tests.trainer import saved
from tests.trainer.mounts import make_read_only, tmpfs
from tests.trainer.saved import ORDER, candidates, manifest, save
from tests.trainer.storage import UNREADABLE, failing, short_retries


@pytest.fixture(autouse=True)
def _short_retries() -> Iterator[None]:
    with short_retries():
        yield


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def newest(folder: Path, **options: Any) -> str | None:
    found = saved.newest(folder, **options)
    return found.name if found else None


def test_an_empty_folder_has_no_candidate(tmp_path: Path) -> None:
    assert newest(tmp_path) is None


def test_the_newest_generation_wins_over_a_later_step(tmp_path: Path) -> None:
    for steps, generation in ((9, 1), (4, 2), (5, 2)):
        save(tmp_path, manifest(steps, generation))
    assert newest(tmp_path) == "step-00000005-g0002"


def damage_data(path: Path) -> None:
    with (path / "shard-00001.bin").open("r+b") as shard:
        shard.seek(2500)
        shard.write(b"weighty")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_data, "shard-00001.bin differs from its checksum between bytes 2000 and 3000"),
        (lambda path: os.truncate(path / "shard-00000.bin", 2000), "shard-00000.bin has 2000 bytes"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: (path / "shard-00001.bin").unlink(), "shard-00001.bin is missing"),
        (lambda path: (path / "manifest.json").write_bytes(b"\xff"), "manifest.json is not readable"),
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json is not readable"),
    ],
)
def test_a_damaged_snapshot_is_quarantined_and_the_one_before_is_used(tmp_path: Path, damage, reason) -> None:
    for steps in (2, 3):
        save(tmp_path, manifest(steps))
    damage(tmp_path / "step-00000003-g0001")
    lines: list[str] = []
    found = saved.newest(tmp_path, lines.append)
    assert found is not None
    assert found.step == 2
    assert names(tmp_path) == ["bad-step-00000003-g0001", "step-00000002-g0001"]
    (line,) = lines
    assert str(tmp_path / "step-00000003-g0001") in line
    assert reason in line
    assert "bad-step-00000003-g0001" in line


def test_an_invalid_ledger_is_damage(tmp_path: Path) -> None:
    save(tmp_path, manifest(2))
    save(tmp_path, manifest(3, ledger=manifest(2).ledger))
    assert newest(tmp_path) == "step-00000002-g0001"
    assert names(tmp_path) == ["bad-step-00000003-g0001", "step-00000002-g0001"]


def test_other_runs_are_used_only_with_resume(tmp_path: Path) -> None:
    save(tmp_path, manifest(9, 1, run="run-0", created=2.0))
    save(tmp_path, manifest(5, 2, run="run-00", created=1.0))
    assert newest(tmp_path) is None
    assert newest(tmp_path, resume=True) == "step-00000005-g0002"
    save(tmp_path, manifest(1, 3))
    assert newest(tmp_path, resume=True) == "step-00000001-g0003"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "another"}, r"its model has other parameters \(signature another, not a model\)"),
        ({"optimizer": "Adam"}, "its optimizer is Adam, not SGD"),
        ({"batch": 5}, "its batch size is 5, not 4"),
        ({"seed": 7}, "its seed is 7, not 0"),
        ({"samples": 12}, "its data set's size is 12, not 10"),
        (
            {"dataset": "others"},
            "its data set is another one of the same length .fingerprint [0-9a-f]+, not [0-9a-f]+",
        ),
        (
            {"batch": 5, "seed": 7, "optimizer": "Adam"},
            "Adam, not SGD; its batch size is 5, not 4; its seed is 7, not 0",
        ),
        ({"format": 1}, "it has format 1, and this version reads 2"),
    ],
)
@pytest.mark.parametrize(("run", "owner"), [("run-1", "this run"), ("run-0", "run run-0")])
def test_an_incompatible_snapshot_is_an_error_that_names_both_values(
    tmp_path: Path, changes: dict[str, Any], reason: str, run: str, owner: str
) -> None:
    """Also one of an earlier run: falling back to an older one, or to the start, would silently lose its progress."""
    Fence(tmp_path).claim(run)
    Fence(tmp_path).claim(run)
    save(tmp_path, manifest(2, 1, run=run))
    save(tmp_path, made(changes, run))
    with pytest.raises(SnapshotError, match=f"step-00000009-g0002 is of {owner}, but.*{reason}.*; start a new run"):
        newest(tmp_path, resume=True)
    lines: list[str] = []
    found = saved.newest(tmp_path, lines.append, resume=True, from_scratch=True)
    assert found is not None
    assert found.step == 2, "requested explicitly"
    assert len(lines) == 1
    assert names(tmp_path) == ["step-00000002-g0001", "step-00000009-g0002"]


def made(changes: dict[str, Any], run: str) -> Any:
    """A snapshot of a run with other settings."""
    order = replace(ORDER, **{name: changes[name] for name in changes.keys() & vars(ORDER).keys()})
    others = {name: changes[name] for name in changes.keys() - vars(ORDER).keys()}
    return saved.manifest(9, 2, run=run, order=order, **others)


def test_earlier_runs_are_ignored_without_resume(tmp_path: Path) -> None:
    Fence(tmp_path).claim("run-0")
    save(tmp_path, made({"batch": 5}, "run-0"))
    path = tmp_path / save(tmp_path, manifest(1, 1, run="run-0")).name
    (path / "manifest.json").unlink()
    assert newest(tmp_path) is None
    assert path.exists()


def damaged(folder: Path, *steps: int, run: str = "run-1") -> None:
    for step in steps:
        path = folder / save(folder, manifest(step, 1, run=run)).name
        (path / "shard-00001.bin").write_bytes(b"")


@pytest.mark.parametrize(("run", "resume"), [("run-1", ""), ("run-0", "exact")])
def test_with_all_damaged_training_starts_from_scratch_only_if_requested(tmp_path: Path, run: str, resume: str) -> None:
    damaged(tmp_path, 2, 3, run=run)
    reason = "shard-00001.bin has 0 bytes instead of"
    with pytest.raises(SnapshotError) as caught:
        newest(tmp_path, resume=resume)
    for step in (2, 3):
        assert f"step-0000000{step}-g0001: {reason}" in str(caught.value)
    assert "--from-scratch" in str(caught.value)
    with pytest.raises(SnapshotError, match=r"bad-step-00000003-g0001: .*bad-step-00000002-g0001: "):
        newest(tmp_path, resume=resume)  # the next start finds them quarantined
    lines: list[str] = []
    assert saved.newest(tmp_path, lines.append, resume=resume, from_scratch=True) is None
    assert "starting from scratch, as requested" in lines[-1]
    assert names(tmp_path) == ["bad-step-00000002-g0001", "bad-step-00000003-g0001"]


def test_quarantined_snapshots_do_not_prevent_the_use_of_a_good_one(tmp_path: Path) -> None:
    damaged(tmp_path, 3)
    save(tmp_path, manifest(2))
    for _ in range(2):
        assert newest(tmp_path) == "step-00000002-g0001"


def test_without_a_manifest_the_claim_determines_the_owner(tmp_path: Path) -> None:
    fence = Fence(tmp_path)
    for step, run in ((1, "run-0"), (2, "run-1")):
        fence.claim(run)
        (tmp_path / save(tmp_path, manifest(step, step, run=run)).name / "manifest.json").unlink()
    with pytest.raises(SnapshotError) as caught:
        newest(tmp_path)
    assert "step-00000002-g0002: manifest.json is missing" in str(caught.value)
    assert "step-00000001" not in str(caught.value)
    assert names(tmp_path) == ["bad-step-00000002-g0002", "step-00000001-g0001"]


def test_an_unclaimed_snapshot_counts_as_the_runs_own(tmp_path: Path) -> None:
    (tmp_path / save(tmp_path, manifest(1, run="run-0")).name / "manifest.json").unlink()
    with pytest.raises(SnapshotError, match=r"manifest\.json is missing"):
        newest(tmp_path)


def test_a_second_quarantined_snapshot_of_a_name_gets_a_number(tmp_path: Path) -> None:
    save(tmp_path, manifest(1))
    for expected in ("bad-step-00000003-g0001", "bad-2-step-00000003-g0001", "bad-3-step-00000003-g0001"):
        damaged(tmp_path, 3)  # such as from a backup
        assert newest(tmp_path) == "step-00000001-g0001"
        assert expected in names(tmp_path)
    assert len(names(tmp_path)) == 4


@pytest.mark.needs_root
def test_in_a_read_only_folder_a_damaged_snapshot_is_skipped(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="100k") as disk:
        save(disk, manifest(1))
        damaged(disk, 3)
        make_read_only(disk)
        lines: list[str] = []
        found = saved.newest(disk, lines.append)
        assert found is not None
        assert found.step == 1
        assert "it cannot be renamed" in lines[0]


NOT_DAMAGE = [errno.EIO, errno.EMFILE, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES, errno.ENOENT]


@pytest.mark.parametrize("number", NOT_DAMAGE, ids=errno.errorcode.get)
def test_a_failed_read_is_retried_and_logged_once(tmp_path: Path, number: int) -> None:
    for steps in (2, 3):
        save(tmp_path, manifest(steps))
    path = tmp_path / "step-00000003-g0001"
    lines: list[str] = []
    with failing(path / "manifest.json", number, times=3):
        assert [one.step for one in candidates(tmp_path, lines.append).compatible()] == [3, 2]
    (line,) = lines
    assert os.strerror(number) in line
    assert str(path / "manifest.json") in line
    assert "retrying" in line


@pytest.mark.parametrize("number", NOT_DAMAGE, ids=errno.errorcode.get)
@pytest.mark.parametrize("what", ["step-00000003-g0001", ""])
def test_a_persistent_read_failure_is_an_error_and_changes_nothing(tmp_path: Path, number: int, what: str) -> None:
    """For the folder of a snapshot, and for the folder of all snapshots."""
    save(tmp_path, manifest(3))
    if number == errno.ENOENT and not what:
        return  # then there is no folder
    with failing(tmp_path / what, number), pytest.raises(StorageUnavailableError) as caught:
        newest(tmp_path, from_scratch=True)
    assert os.strerror(number) in str(caught.value)
    assert str(tmp_path / what) in str(caught.value)
    assert newest(tmp_path) == "step-00000003-g0001"


def test_a_read_error_without_a_path_is_not_damage(tmp_path: Path) -> None:
    """With a real error of the system, which names no path."""
    path = tmp_path / save(tmp_path, manifest(3)).name / "manifest.json"
    path.rename(path.with_name("good"))
    path.symlink_to(UNREADABLE)
    with pytest.raises(StorageUnavailableError, match=r"Input/output error.*tried 6 times"):
        newest(tmp_path)


def replace_manifest_by_folder(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()


def replace_snapshot_by_file(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.touch()


def replace_manifest_by_symlink_loop(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").symlink_to("manifest.json")


@pytest.mark.parametrize(
    "damage", [replace_manifest_by_folder, replace_snapshot_by_file, replace_manifest_by_symlink_loop]
)
def test_a_path_of_the_wrong_type_is_damage(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    save(tmp_path, manifest(2))
    damage(tmp_path / save(tmp_path, manifest(3)).name)
    assert newest(tmp_path) == "step-00000002-g0001"
    assert "bad-step-00000003-g0001" in names(tmp_path)


def test_in_memory_copies_of_another_run_are_rejected(tmp_path: Path) -> None:
    lines: list[str] = []
    found = candidates(tmp_path, lines.append, resume=True)
    assert found.accepts(manifest(3))
    assert not found.accepts(manifest(3, run="run-0"))
    assert not found.accepts(made({"batch": 5}, "run-1"))
    assert "skipping the in-memory copy of step 9: its batch size is 5, not 4" in lines[0]


def test_snapshots_that_are_not_finite_are_skipped_if_such_a_loss_ends_the_job(tmp_path: Path) -> None:
    save(tmp_path, manifest(1))
    save(tmp_path, manifest(2, not_finite="model/weight has nan"))
    assert newest(tmp_path) == "step-00000002-g0001"
    lines: list[str] = []
    assert newest(tmp_path, log=lines.append, finite=True) == "step-00000001-g0001"
    assert lines == ["skipping step-00000002-g0001: model/weight has nan, and policy.onNonFinite is stop"]


def test_without_a_finite_snapshot_training_does_not_start_from_scratch(tmp_path: Path) -> None:
    save(tmp_path, manifest(2, not_finite="model/weight has nan"))
    with pytest.raises(SnapshotError, match="not finite: model/weight has nan"):
        newest(tmp_path, finite=True)
