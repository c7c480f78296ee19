"""Which snapshot a run goes on from, what becomes of the others, and that no run begins anew in silence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kittrain.snapshots.archive import SnapshotError
from kittrain.snapshots.fence import Fence
from kittrain.system.storage import StorageUnavailableError
from tests.trainer import saved
from tests.trainer.mounts import make_read_only, tmpfs
from tests.trainer.saved import ORDER, candidates, manifest, save
from tests.trainer.storage import UNREADABLE, failing, impatient


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with impatient():
        yield


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def newest(folder: Path, **how: Any) -> str | None:
    found = saved.newest(folder, **how)
    return found.name if found else None


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert newest(tmp_path) is None


def test_the_newest_generation_wins_whatever_step_a_stale_writer_reached(tmp_path: Path) -> None:
    for steps, generation in ((9, 1), (4, 2), (5, 2)):
        save(tmp_path, manifest(steps, generation))
    assert newest(tmp_path) == "step-00000005-g0002"


def damage_data(path: Path) -> None:
    with (path / "shard-00001.bin").open("r+b") as shard:
        shard.seek(2500)
        shard.write(b"weighty")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (damage_data, "shard-00001.bin differs from its checksum between bytes 2000 and 3000"),
        (lambda path: os.truncate(path / "shard-00000.bin", 2000), "shard-00000.bin has 2000 bytes"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: (path / "shard-00001.bin").unlink(), "shard-00001.bin is missing"),
        (lambda path: (path / "manifest.json").write_bytes(b"\xff"), "manifest.json is not readable"),
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json is not readable"),
    ],
)
def test_a_damaged_one_is_kept_and_named_and_the_one_before_is_used(tmp_path: Path, damage, told) -> None:
    for steps in (2, 3):
        save(tmp_path, manifest(steps))
    damage(tmp_path / "step-00000003-g0001")
    said: list[str] = []
    found = saved.newest(tmp_path, said.append)
    assert found is not None
    assert found.step == 2
    assert names(tmp_path) == ["bad-step-00000003-g0001", "step-00000002-g0001"]
    (line,) = said
    assert str(tmp_path / "step-00000003-g0001") in line
    assert told in line
    assert "bad-step-00000003-g0001" in line


def test_a_ledger_that_does_not_hold_is_damage(tmp_path: Path) -> None:
    save(tmp_path, manifest(2))
    save(tmp_path, manifest(3, ledger=manifest(2).ledger))
    assert newest(tmp_path) == "step-00000002-g0001"
    assert names(tmp_path) == ["bad-step-00000003-g0001", "step-00000002-g0001"]


def test_other_runs_count_only_with_resume(tmp_path: Path) -> None:
    save(tmp_path, manifest(9, 1, run="run-0", created=2.0))
    save(tmp_path, manifest(5, 2, run="run-00", created=1.0))
    assert newest(tmp_path) is None
    assert newest(tmp_path, resume="exact") == "step-00000005-g0002"
    save(tmp_path, manifest(1, 3))
    assert newest(tmp_path, resume="exact") == "step-00000001-g0003"


@pytest.mark.parametrize(
    ("changes", "told"),
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
@pytest.mark.parametrize(("run", "whose"), [("run-1", "this run"), ("run-0", "run run-0")])
def test_what_is_of_something_else_is_an_error_that_names_both_values(
    tmp_path: Path, changes: dict[str, Any], told: str, run: str, whose: str
) -> None:
    """Also of an earlier run: to go on from an older one, or to begin anew, would lose in silence what is there."""
    Fence(tmp_path).claim(run)
    Fence(tmp_path).claim(run)
    save(tmp_path, manifest(2, 1, run=run))
    save(tmp_path, made(changes, run))
    with pytest.raises(SnapshotError, match=f"step-00000009-g0002 is of {whose}, but.*{told}.*; start a new run"):
        newest(tmp_path, resume="exact")
    said: list[str] = []
    found = saved.newest(tmp_path, said.append, resume="exact", from_scratch=True)
    assert found is not None
    assert found.step == 2, "asked for on purpose"
    assert len(said) == 1
    assert names(tmp_path) == ["step-00000002-g0001", "step-00000009-g0002"]


def made(changes: dict[str, Any], run: str) -> Any:
    """A snapshot of a run that was something else."""
    order = replace(ORDER, **{name: changes[name] for name in changes.keys() & vars(ORDER).keys()})
    others = {name: changes[name] for name in changes.keys() - vars(ORDER).keys()}
    return saved.manifest(9, 2, run=run, order=order, **others)


def test_earlier_runs_concern_nobody_who_does_not_resume(tmp_path: Path) -> None:
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
def test_with_none_left_training_does_not_begin_anew_unless_asked_to(tmp_path: Path, run: str, resume: str) -> None:
    damaged(tmp_path, 2, 3, run=run)
    why = "shard-00001.bin has 0 bytes instead of"
    with pytest.raises(SnapshotError) as caught:
        newest(tmp_path, resume=resume)
    for step in (2, 3):
        assert f"step-0000000{step}-g0001: {why}" in str(caught.value)
    assert "--from-scratch" in str(caught.value)
    with pytest.raises(SnapshotError, match=r"bad-step-00000003-g0001: .*bad-step-00000002-g0001: "):
        newest(tmp_path, resume=resume)  # the next start finds them put aside
    said: list[str] = []
    assert saved.newest(tmp_path, said.append, resume=resume, from_scratch=True) is None
    assert "beginning anew from scratch, as asked" in said[-1]
    assert names(tmp_path) == ["bad-step-00000002-g0001", "bad-step-00000003-g0001"]


def test_what_was_put_aside_does_not_hold_up_who_has_a_good_one(tmp_path: Path) -> None:
    damaged(tmp_path, 3)
    save(tmp_path, manifest(2))
    for _ in range(2):
        assert newest(tmp_path) == "step-00000002-g0001"


def test_without_a_manifest_the_claim_tells_whose_it_is(tmp_path: Path) -> None:
    fence = Fence(tmp_path)
    for step, run in ((1, "run-0"), (2, "run-1")):
        fence.claim(run)
        (tmp_path / save(tmp_path, manifest(step, step, run=run)).name / "manifest.json").unlink()
    with pytest.raises(SnapshotError) as caught:
        newest(tmp_path)
    assert "step-00000002-g0002: manifest.json is missing" in str(caught.value)
    assert "step-00000001" not in str(caught.value)
    assert names(tmp_path) == ["bad-step-00000002-g0002", "step-00000001-g0001"]


def test_what_nobody_has_claimed_may_be_ours(tmp_path: Path) -> None:
    (tmp_path / save(tmp_path, manifest(1, run="run-0")).name / "manifest.json").unlink()
    with pytest.raises(SnapshotError, match=r"manifest\.json is missing"):
        newest(tmp_path)


def test_a_second_one_of_a_name_is_put_aside_beside_the_first(tmp_path: Path) -> None:
    save(tmp_path, manifest(1))
    for expected in ("bad-step-00000003-g0001", "bad-2-step-00000003-g0001", "bad-3-step-00000003-g0001"):
        damaged(tmp_path, 3)  # such as from a backup
        assert newest(tmp_path) == "step-00000001-g0001"
        assert expected in names(tmp_path)
    assert len(names(tmp_path)) == 4


@pytest.mark.needs_root
def test_in_a_folder_that_can_only_be_read_a_damaged_one_stays_and_is_passed_over(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="100k") as disk:
        save(disk, manifest(1))
        damaged(disk, 3)
        make_read_only(disk)
        said: list[str] = []
        found = saved.newest(disk, said.append)
        assert found is not None
        assert found.step == 1
        assert "it stays, as it cannot be renamed" in said[0]


NO_PROOF = [errno.EIO, errno.EMFILE, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES, errno.ENOENT]


@pytest.mark.parametrize("number", NO_PROOF, ids=errno.errorcode.get)
def test_what_cannot_be_read_now_is_tried_again_and_told_once(tmp_path: Path, number: int) -> None:
    for steps in (2, 3):
        save(tmp_path, manifest(steps))
    path = tmp_path / "step-00000003-g0001"
    said: list[str] = []
    with failing(path / "manifest.json", number, times=3):
        assert [one.step for one in candidates(tmp_path, said.append).offers()] == [3, 2]
    (line,) = said
    assert os.strerror(number) in line
    assert str(path / "manifest.json") in line
    assert "retrying" in line


@pytest.mark.parametrize("number", NO_PROOF, ids=errno.errorcode.get)
@pytest.mark.parametrize("what", ["step-00000003-g0001", ""])
def test_what_can_never_be_read_ends_the_start_and_stays(tmp_path: Path, number: int, what: str) -> None:
    """Of the folder of a snapshot, and of the folder of all of them."""
    save(tmp_path, manifest(3))
    if number == errno.ENOENT and not what:
        return  # there is no folder then
    with failing(tmp_path / what, number), pytest.raises(StorageUnavailableError) as caught:
        newest(tmp_path, from_scratch=True)
    assert os.strerror(number) in str(caught.value)
    assert str(tmp_path / what) in str(caught.value)
    assert newest(tmp_path) == "step-00000003-g0001"


def test_a_read_that_fails_is_no_proof_either(tmp_path: Path) -> None:
    """By a real error of the system, which names no path."""
    path = tmp_path / save(tmp_path, manifest(3)).name / "manifest.json"
    path.rename(path.with_name("good"))
    path.symlink_to(UNREADABLE)
    with pytest.raises(StorageUnavailableError, match=r"Input/output error.*tried 6 times"):
        newest(tmp_path)


def put_a_folder(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()


def put_a_file(path: Path) -> None:
    path.rename(path.with_name("away"))
    path.touch()


def put_a_loop(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").symlink_to("manifest.json")


@pytest.mark.parametrize("harm", [put_a_folder, put_a_file, put_a_loop])
def test_what_is_there_but_can_be_no_snapshot_is_damaged(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    save(tmp_path, manifest(2))
    harm(tmp_path / save(tmp_path, manifest(3)).name)
    assert newest(tmp_path) == "step-00000002-g0001"
    assert "bad-step-00000003-g0001" in names(tmp_path)


def test_copies_in_memory_of_another_run_do_not_count(tmp_path: Path) -> None:
    said: list[str] = []
    found = candidates(tmp_path, said.append, resume="exact")
    assert found.takes(manifest(3))
    assert not found.takes(manifest(3, run="run-0"))
    assert not found.takes(made({"batch": 5}, "run-1"))
    assert "passing over the copy in memory of step 9: its batch size is 5, not 4" in said[0]
