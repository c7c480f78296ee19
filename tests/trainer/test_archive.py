"""Which snapshot a run goes on from, and what becomes of the others."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from tests.trainer.saved import CONTENTS, archive, manifest
from tests.trainer.worlds import finish, fork
from trainer.archive import SnapshotError
from trainer.data import Order
from trainer.fence import Fenced
from trainer.snapshot import write


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def newest(folder: Path, *, resume: bool = False) -> str | None:
    found = archive(folder).newest(resume=resume)
    return found.manifest.name if found else None


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert newest(tmp_path) is None


def test_the_newest_generation_wins_whatever_step_a_stale_writer_reached(tmp_path: Path) -> None:
    for steps, generation in ((9, 1), (4, 2), (5, 2)):
        write(tmp_path, manifest(steps, generation), CONTENTS)
    assert newest(tmp_path) == "step-00000005-g0002"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: (path / "state.pt").write_bytes(b"weighty" * 1000), "state.pt differs from its digest"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: (path / "rng.pt").unlink(), "rng.pt is missing"),
        (lambda path: (path / "manifest.json").write_bytes(b"\xff"), "manifest.json is not readable"),
        (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json is not readable"),
    ],
)
def test_a_damaged_one_is_kept_and_named_and_the_one_before_is_used(tmp_path: Path, damage, told) -> None:
    for steps in (2, 3):
        write(tmp_path, manifest(steps), CONTENTS)
    damage(tmp_path / "step-00000003-g0001")
    said: list[str] = []
    found = archive(tmp_path, said.append).newest(resume=False)
    assert found is not None
    assert found.manifest.step == 2
    assert names(tmp_path) == ["bad-step-00000003-g0001", "step-00000002-g0001"]
    (line,) = said
    assert str(tmp_path / "step-00000003-g0001") in line
    assert told in line
    assert "bad-step-00000003-g0001" in line


def test_a_ledger_that_does_not_hold_is_damage(tmp_path: Path) -> None:
    write(tmp_path, manifest(3, ledger=manifest(2).ledger), CONTENTS)
    assert newest(tmp_path) is None
    assert names(tmp_path) == ["bad-step-00000003-g0001"]


def test_other_runs_count_only_with_resume(tmp_path: Path) -> None:
    write(tmp_path, manifest(9, 1, run="run-0", created=1.0), CONTENTS)
    write(tmp_path, manifest(5, 2, run="run-00", created=2.0), CONTENTS)
    assert newest(tmp_path) is None
    assert newest(tmp_path, resume=True) == "step-00000005-g0002"
    write(tmp_path, manifest(1, 3), CONTENTS)
    assert newest(tmp_path, resume=True) == "step-00000001-g0003"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "another"}, "other parameters"),
        ({"data": Order(samples=10, batch=5).fingerprint}, "batch size"),
    ],
)
def test_a_foreign_one_is_passed_over_but_of_ones_own_run_is_an_error(tmp_path: Path, changes, told) -> None:
    write(tmp_path, manifest(2, 1, run="run-0"), CONTENTS)
    write(tmp_path, manifest(9, 2, run="run-0", **changes), CONTENTS)
    said: list[str] = []
    found = archive(tmp_path, said.append).newest(resume=True)
    assert found is not None
    assert found.manifest.step == 2
    assert told in said[0]
    assert len(names(tmp_path)) == 2
    write(tmp_path, manifest(3, 3, **changes), CONTENTS)
    with pytest.raises(SnapshotError, match=f"step-00000003-g0003 is of this run, but.*{told}"):
        newest(tmp_path, resume=True)


def test_the_last_few_of_the_run_are_kept(tmp_path: Path) -> None:
    write(tmp_path, manifest(9, 1, run="run-0"), CONTENTS)
    (tmp_path / "bad-step-00000001-g0002").mkdir()
    mine = archive(tmp_path, keep=2)
    assert mine.claim() == 2
    for steps in (1, 2, 3):
        mine.publish(manifest(steps, 2), CONTENTS)
    assert names(tmp_path) == [
        "bad-step-00000001-g0002",
        "step-00000002-g0002",
        "step-00000003-g0002",
        "step-00000009-g0001",
    ]


def test_copied_snapshots_count_as_claims(tmp_path: Path) -> None:
    write(tmp_path, manifest(3, 7), CONTENTS)
    assert [archive(tmp_path).claim() for _ in range(2)] == [8, 9]


def test_a_stale_writer_fails_and_leaves_nothing(tmp_path: Path) -> None:
    stale, fresh = archive(tmp_path), archive(tmp_path)
    assert stale.claim() == 1
    stale.publish(manifest(1, 1), CONTENTS)
    assert fresh.claim() == 2
    with pytest.raises(Fenced, match="generation 2 has taken over"):
        stale.publish(manifest(2, 1), CONTENTS)
    assert names(tmp_path) == ["step-00000001-g0001"]
    fresh.publish(manifest(2, 2), CONTENTS)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SnapshotError, match=f"no snapshots can be written to {blocked}"):
        archive(blocked).claim()


def test_no_space_leaves_the_last_good_one(tmp_path: Path) -> None:
    archive(tmp_path).claim()
    archive(tmp_path).publish(manifest(1), CONTENTS)
    assert finish(fork(publish_without_space, tmp_path)) == 0
    assert names(tmp_path) == ["step-00000001-g0001"]
    assert not list(tmp_path.glob(".tmp-*"))
    assert newest(tmp_path) == "step-00000001-g0001"


def publish_without_space(folder: Path) -> None:
    """The system refuses to write more than 5,000 bytes to a file, as a full disk would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    with pytest.raises(OSError) as caught:  # noqa: PT011  the number is what tells
        archive(folder).publish(manifest(2), CONTENTS)
    assert caught.value.errno == errno.EFBIG
