"""Two processes that write one mirror, and what stays in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kitjob import typed
from kitjob.job_keys import JobKeys
from kitjob.sections import Snapshots
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder.listing import is_empty
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.folder.snapshot import Manifest, verify
from kittrain.rank.snapshots.mirror.errors import (
    MirrorDamagedError,
    MirrorError,
    MirrorHandedOverError,
    MirrorTakenError,
)
from kittrain.rank.snapshots.mirror.fetching import check_folder, fetch, newer_than
from kittrain.rank.snapshots.mirror.index import INDEX, Entry, Owner
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.writing import Mirror, read_index
from tests.s3 import S3
from tests.trainer import runs

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server


def mirror(store: Store, claim: str, run: str = "run-1", *, resume: bool = False) -> Mirror:
    """A mirror that this claim has taken."""
    made = Mirror(store, Owner(run=run, job="digits", claim=claim, host="pod-0", since=1.0), resume=resume)
    made.claim()
    return made


def keeping(count: int) -> Retention:
    return Retention(RankEnv(job=JobKeys(snapshots=Snapshots(keep=count))))


def add(one: Mirror, folder: Path, manifest: Manifest, keep: int = 9) -> Entry:
    return one.add(folder, manifest, keeping(keep), lambda: {path.name for path in folder.glob("step-*")})


def steps(store: Store) -> list[int]:
    found = read_index(store)
    assert found
    return [one.step for one in found[0].newest]


def quiet(_: str) -> None:
    """No log."""


def test_what_a_check_left_that_was_cut_off_goes_with_the_next_claim(store: Store) -> None:
    store.put(".probe/1", b"1")
    mirror(store, "a")
    assert store.list("") == [INDEX]


def test_what_was_added_comes_back_whole(store: Store, tmp_path: Path) -> None:
    (there := tmp_path / "there").mkdir()
    one = mirror(store, "a")
    for manifest in runs.run(there, 1, 2):
        add(one, there, manifest)
    back = tmp_path / "back"
    assert is_empty(back)
    entry = fetch(store, back, run="run-1", resume=False, log=quiet)
    assert entry
    assert [path.name for path in back.iterdir()] == ["step-00000002-g0001"]
    assert verify(back / entry.name) == verify(there / entry.name)
    assert not is_empty(back)
    for above in ((1, 1), (1, 2), (2, 0)):  # of what the nodes have
        (other := tmp_path / str(above)).mkdir()
        assert bool(fetch(store, other, run="run-1", resume=False, above=above, log=quiet)) == (above == (1, 1))


def test_an_earlier_writer_is_fenced_off(store: Store, tmp_path: Path) -> None:
    first, (one, two) = mirror(store, "a"), runs.run(tmp_path, 1, 2)
    add(first, tmp_path, one)
    second = mirror(store, "b")
    with pytest.raises(MirrorHandedOverError, match="now written by another node of this run, on pod-0"):
        add(first, tmp_path, two)
    assert steps(store) == [1]
    add(second, tmp_path, two)
    assert steps(store) == [2, 1]


def test_what_a_fenced_writer_left_is_deleted_with_the_next_claim(store: Store, tmp_path: Path) -> None:
    first, (one, two) = mirror(store, "a"), runs.run(tmp_path, 1, 2)
    add(first, tmp_path, one)
    mirror(store, "b")
    with pytest.raises(MirrorTakenError):
        add(first, tmp_path, two)
    assert any("step-00000002" in key for key in store.list("data"))
    mirror(store, "c")
    assert {key.split("/")[2] for key in store.list("data")} == {one.name}
    assert fetch(store, tmp_path / "back", run="run-1", resume=False, log=quiet)


def test_expired_snapshots_are_dropped_once_the_folder_has_dropped_them(store: Store, tmp_path: Path) -> None:
    one, manifests = mirror(store, "a"), runs.run(tmp_path, 1, 2, 3, 4)
    for manifest in manifests[:3]:
        add(one, tmp_path, manifest, keep=2)
    assert steps(store) == [3, 2, 1], "the folder still has all of them"
    (tmp_path / manifests[0].name).rename(tmp_path / "gone")
    add(one, tmp_path, manifests[3], keep=2)
    assert steps(store) == [4, 3, 2]
    assert not any(manifests[0].name in key for key in store.list("data"))


def test_a_folder_that_was_lost_drops_nothing(store: Store, tmp_path: Path) -> None:
    one, manifests = mirror(store, "a"), runs.run(tmp_path, 1, 2, 3)
    for manifest in manifests[:2]:
        add(one, tmp_path, manifest, keep=1)
    one.add(tmp_path, manifests[2], keeping(1), set)
    assert steps(store) == [3, 2, 1]


def test_a_damaged_snapshot_is_not_uploaded(store: Store, tmp_path: Path) -> None:
    one, (manifest,) = mirror(store, "a"), runs.run(tmp_path, 1)
    runs.flip(tmp_path / manifest.name / "shard-00000.bin")
    with pytest.raises(CorruptError):
        add(one, tmp_path, manifest)
    assert steps(store) == []


def test_the_newest_whole_one_is_fetched(s3: S3, store: Store, url: str, tmp_path: Path) -> None:
    one, manifests = mirror(store, "a"), runs.run(tmp_path, 1, 2)
    for manifest in manifests:
        add(one, tmp_path, manifest)
    objects = s3.root / url.removeprefix("s3://") / "data" / "a"
    runs.flip(objects / manifests[1].name / "shard-00000.bin")
    said: list[str] = []
    entry = fetch(store, tmp_path / "back", run="run-1", resume=False, log=said.append)
    assert entry
    assert entry.step == 1
    assert "step-00000002-g0001 of s3://" in said[0]
    assert [path.name for path in (tmp_path / "back").iterdir()] == [entry.name], "no scratch folder is left"
    (objects / manifests[0].name / "manifest.json").unlink()
    with pytest.raises(MirrorDamagedError, match=r"no snapshot in s3://.* is usable: step-00000002.*; step-00000001"):
        fetch(store, tmp_path / "again", run="run-1", resume=False, log=quiet)


def test_another_run_takes_over_only_on_purpose(store: Store, tmp_path: Path) -> None:
    first, (one, two) = mirror(store, "a"), runs.run(tmp_path, 1, 2)
    add(first, tmp_path, one)
    for act in (
        lambda: mirror(store, "b", run="run-2"),
        lambda: fetch(store, tmp_path / "back", run="run-2", resume=False, log=quiet),
    ):
        with pytest.raises(MirrorError, match="is that of run run-1"):
            act()
    assert fetch(store, tmp_path / "back", run="run-2", resume=True, log=quiet)
    mirror(store, "b", run="run-2", resume=True)
    with pytest.raises(MirrorTakenError, match=r"now written by run run-2 \(job 'digits'\)"):
        add(first, tmp_path, two)
    assert steps(store) == [1]


def test_names_from_the_store_stay_in_the_folder(store: Store, tmp_path: Path) -> None:
    one, (manifest,) = mirror(store, "a"), runs.run(tmp_path, 1)
    add(one, tmp_path, manifest)
    (tmp_path / "lines").write_text("x\n")
    one.keep_history([("history/run-1/0.jsonl", tmp_path / "lines")])
    found = read_index(store)
    assert found
    index, version = found
    outside = replace(index.history[0], path="../../outside")
    store.replace(INDEX, typed.dump(replace(index, history=(outside, *index.history))), version)
    back = tmp_path / "deep" / "back"
    fetch(store, back, run="run-1", resume=False, log=quiet)
    assert (back / "history" / "run-1" / "0.jsonl").read_text() == "x\n"
    assert not (tmp_path / "outside").exists()
    found = read_index(store)
    assert found
    elsewhere = replace(index.snapshots[0], name="../step-00000001-g0001")
    store.replace(INDEX, typed.dump(replace(index, snapshots=(elsewhere,))), found[1])
    with pytest.raises(MirrorDamagedError, match="is no name of a snapshot"):
        fetch(store, tmp_path / "third", run="run-1", resume=False, log=quiet)


def test_a_folder_with_another_history_is_not_used_in_place_of_the_mirror(store: Store, tmp_path: Path) -> None:
    one, there = mirror(store, "a"), tmp_path / "there"
    there.mkdir()
    first, second = runs.run(there, 1, 2)
    add(one, there, first)
    check_folder(store, one.index, there, run="run-2")  # it is a later part of the same
    check_folder(store, one.index, tmp_path / "empty", run="run-2")
    (other := tmp_path / "other").mkdir()
    runs.run(other, 3, generation=2)
    with pytest.raises(MirrorError, match=r"do not continue step-00000001-g0001 of s3://.*; fix: use another --name"):
        check_folder(store, one.index, other, run="run-2")
    check_folder(store, one.index, other, run="run-1")  # its own may lag, or have been left
    add(one, there, second)
    (there / second.name).rename(tmp_path / "gone")
    with pytest.raises(MirrorError, match="do not continue step-00000002-g0001"):
        check_folder(store, one.index, there, run="run-2")


def test_a_folder_of_this_run_that_is_older_than_its_mirror_is_told(store: Store, tmp_path: Path) -> None:
    one = mirror(store, "a")
    (there := tmp_path / "there").mkdir()
    first, second = runs.run(there, 1, 2)
    add(one, there, first)
    assert newer_than(there, one.index, run="run-1") is None  # the mirror is behind, as it may be
    add(one, there, second)
    assert newer_than(there, one.index, run="run-1") is None
    (there / second.name).rename(tmp_path / "gone")
    found = newer_than(there, one.index, run="run-1")
    assert found is not None
    assert found.name == second.name
    assert newer_than(there, one.index, run="run-2") is None  # that is refused, or a later part
    assert newer_than(tmp_path / "empty", one.index, run="run-1") is None  # it is filled
