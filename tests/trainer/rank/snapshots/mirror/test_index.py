"""What a mirror's index says, and who may change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kitjob import typed
from kittrain.rank.snapshots.mirror import index as indices
from kittrain.rank.snapshots.mirror.errors import MirrorDamagedError, MirrorError, MirrorTakenError
from kittrain.rank.snapshots.mirror.index import Copied, Entry, Index, Owner

URL = "s3://bucket/run"


def owner(claim: str, run: str = "run-1") -> Owner:
    return Owner(run=run, job="digits", claim=claim, host="pod-0", since=1.0)


def entry(step: int, generation: int = 1, **facts: Any) -> Entry:
    name = f"step-{step:08}-g{generation:04}"
    files = (Copied(path=f"{name}/shard-00000.bin", key=f"data/a/{name}/shard-00000.bin", size=3, sha256="0"),)
    known = {"run": "run-1", "data": "order", "created": 1.0, "digest": "d", "files": files}
    return Entry(name=name, generation=generation, step=step, **{**known, **facts})


def test_it_is_read_as_it_was_written() -> None:
    one = Index(owner=owner("a"), runs=("run-0",), past=("z",), snapshots=(entry(20, metrics={"loss": 0.5}),))
    assert indices.parse(typed.dump(one), URL) == one


@pytest.mark.parametrize("content", [b"", b"[]", b"<html>", b'{"format":1}', b'{"format":1,"owner":"me"}'])
def test_what_is_no_index_is_told(content: bytes) -> None:
    with pytest.raises(MirrorDamagedError, match=f"{URL}/mirror.json is no index"):
        indices.parse(content, URL)


def test_one_of_a_later_version_is_left_alone() -> None:
    with pytest.raises(MirrorError, match=r"has format 2, and this version reads 1; fix: .* another prefix"):
        indices.parse(typed.dump(replace(Index(owner=owner("a")), format=2)), URL)


def test_a_mirror_belongs_to_one_run_until_another_continues_it() -> None:
    one = Index(owner=owner("a"))
    indices.check_run(one, "run-1", resume=False, url=URL)
    indices.check_run(one, "run-2", resume=True, url=URL)
    with pytest.raises(MirrorError, match=r"is that of run run-1 \(job 'digits'\); fix: .* --continue s3://bucket/run"):
        indices.check_run(one, "run-2", resume=False, url=URL)


def test_a_later_claim_ends_an_earlier_one() -> None:
    first = owner("a")
    one = indices.claimed(Index(owner=first), owner("b"))
    with pytest.raises(MirrorTakenError, match="now written by another node of this run"):
        indices.check_owner(one, first, URL)
    other = indices.claimed(one, owner("c", run="run-2"))
    assert (other.runs, other.past) == (("run-1",), ("a", "b"))
    with pytest.raises(MirrorTakenError, match=r"now written by run run-2 \(job 'digits'\)"):
        indices.check_owner(other, owner("b"), URL)


def test_a_snapshot_replaces_one_of_its_name() -> None:
    one = indices.added(Index(owner=owner("a"), snapshots=(entry(20), entry(40))), entry(20, digest="other"))
    assert [(each.step, each.digest) for each in one.newest] == [(40, "d"), (20, "other")]


def test_only_the_same_history_counts_for_retention() -> None:
    kept = (
        entry(20, run="run-0"),
        entry(30, data="other"),
        entry(90, generation=1),
        entry(40),
        entry(60, generation=2),
    )
    new = entry(80, generation=2)
    assert [one.step for one in indices.lineage(Index(owner=owner("a"), snapshots=kept), new)] == [40, 60, 80]


def test_leftovers_are_what_earlier_claims_left_and_nobody_names() -> None:
    one = Index(owner=owner("c"), past=("a", "b"), snapshots=(entry(20),))
    keys = [entry(20).files[0].key, "data/a/x/shard", "data/b/y", "data/c/z", "data/unknown/z", "mirror.json", "data"]
    assert indices.leftovers(one, keys) == ["data/a/x/shard", "data/b/y"]
