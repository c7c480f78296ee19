"""A mirror behind a network and a store with faults: nothing is lost, nothing is wrong, and what cannot be is told."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from kitjob import typed
from kitjob.report import MirrorReport
from kittrain.rank.snapshots.folder.snapshot import verify
from kittrain.rank.snapshots.mirror import uploading
from kittrain.rank.snapshots.mirror.errors import MirrorError, MirrorUnavailableError
from kittrain.rank.snapshots.mirror.fetching import fetch
from kittrain.rank.snapshots.mirror.index import INDEX, Owner
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.uploading import Uploader
from kittrain.rank.snapshots.mirror.writing import Mirror
from tests.s3 import S3
from tests.s3_proxy import Fault, Proxy, Seen, in_front_of
from tests.trainer import runs
from tests.trainer.rank.snapshots.mirror.test_writing import add, keeping, mirror, quiet, steps

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server

SKEWED: Final = (("x-amz-date", "20200101T000000Z"),)


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    with in_front_of(s3.url) as one:
        yield one


@pytest.fixture
def faulty(s3: S3, proxy: Proxy, url: str) -> Store:
    """The same prefix as ``store``, behind the proxy."""
    return Store(url, s3.environ(proxy.url))


def first(count: int, fault: Fault, which: Callable[[Seen], bool] = lambda _: True) -> Callable[[Seen], Fault | None]:
    """A rule for the first so many requests of a kind."""
    left = [count]

    def rule(seen: Seen) -> Fault | None:
        if left[0] and which(seen):
            left[0] -= 1
            return fault
        return None

    return rule


def is_index(seen: Seen) -> bool:
    return seen.method == "PUT" and seen.path.endswith(INDEX)


def is_data(seen: Seen) -> bool:
    return "/data/" in seen.path and seen.method in {"PUT", "POST", "GET"}


@pytest.mark.parametrize(
    "fault",
    [Fault(status=503), Fault(lost=True), Fault(delay=0.2), Fault(cut=True), Fault(status=500)],
    ids=["503", "answer lost", "slow", "cut", "500"],
)
@pytest.mark.parametrize("which", [is_index, is_data], ids=["index", "data"])
def test_what_is_tried_again_leaves_the_mirror_right(
    store: Store, faulty: Store, proxy: Proxy, tmp_path: Path, fault: Fault, which: Callable[[Seen], bool]
) -> None:
    (there := tmp_path / "there").mkdir()
    one, manifests = mirror(faulty, "a"), runs.run(there, 1, 2)
    for manifest in manifests:
        proxy.rule = first(2, fault, which)
        add(one, there, manifest)
    assert steps(store) == [2, 1]
    proxy.rule = first(2, fault, is_data)
    entry = fetch(faulty, tmp_path / "back", run="run-1", resume=False, log=quiet)
    assert entry
    assert verify(tmp_path / "back" / entry.name) == manifests[1]


def test_an_index_whose_answer_was_lost_is_known_as_its_own(store: Store, faulty: Store, proxy: Proxy) -> None:
    proxy.rule = first(1, Fault(lost=True), is_index)
    mirror(faulty, "a")
    assert sum(is_index(seen) for seen in proxy.seen) >= 1
    assert steps(store) == []
    with pytest.raises(MirrorError, match="is that of run run-1"):
        mirror(store, "b", run="run-2")


def test_a_stale_list_deletes_nothing_that_is_needed(store: Store, faulty: Store, proxy: Proxy, tmp_path: Path) -> None:
    one, manifests = mirror(store, "a"), runs.run(tmp_path, 1, 2)
    add(one, tmp_path, manifests[0])
    stale = b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
    proxy.rule = lambda seen: Fault(replayed=stale) if "list-type" in seen.path else None
    two = mirror(faulty, "b")
    add(two, tmp_path, manifests[1])
    assert steps(store) == [2, 1]
    assert fetch(faulty, tmp_path / "back", run="run-1", resume=False, log=quiet)


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_store_that_ignores_conditions_is_refused(s3: S3, faulty: Store, proxy: Proxy, header: str) -> None:
    def ignoring(seen: Seen) -> Fault | None:
        if seen.method != "PUT" or not any(name.lower() == header.lower() for name in seen.headers):
            return None
        path = s3.root / seen.path.strip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(seen.body)
        return Fault(replayed=b"")

    proxy.rule = ignoring
    with pytest.raises(MirrorError, match=rf"the store ignores {header}, .* fix: use a store that honours it"):
        faulty.probe()


def test_a_clock_that_is_off_is_told(faulty: Store, proxy: Proxy) -> None:
    proxy.rule = lambda _: Fault(headers=SKEWED)
    with pytest.raises(MirrorError, match=r"clock is off.*fix: set the clock"):
        faulty.probe()


def test_no_right_to_write_is_told(faulty: Store, proxy: Proxy) -> None:
    denied = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
    proxy.rule = lambda seen: Fault(status=403, replayed=denied) if seen.method == "PUT" else None
    with pytest.raises(MirrorError, match=r"may not read and write there \(AccessDenied\); fix: grant s3:GetObject"):
        faulty.probe()


def test_training_never_waits_and_the_status_tells_how_far_it_is(
    s3: S3, store: Store, proxy: Proxy, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away for a while; what was published meanwhile follows when it is back."""
    monkeypatch.setattr(uploading, "RETRY", 0.05)
    monkeypatch.setattr(uploading, "INTERVAL", 0.05)
    monkeypatch.setattr("kittrain.rank.snapshots.mirror.store.RETRY_SECONDS", 0)
    (folder := tmp_path / "there").mkdir()
    owner = Owner(run="run-1", job="digits", claim="a", host="pod-0", since=1.0)
    said: list[str] = []

    def opened() -> Mirror:
        return Mirror(Store(url, s3.environ(proxy.url)), owner, resume=False)

    uploader = Uploader(
        node=0,
        url=url,
        open=opened,
        folder=folder,
        run="run-1",
        retention=keeping(9),
        status=tmp_path / "status",
        log=said.append,
    )
    proxy.rule = lambda _: Fault(status=503)
    worker = threading.Thread(target=uploader.run_until_done)
    worker.start()
    try:
        told = until(tmp_path / "status", lambda report: bool(report.warning))
        assert "does not answer" in told.warning
        manifests = runs.run(folder, 1, 2)
        proxy.rule = lambda _: None
        told = until(tmp_path / "status", lambda report: report.step == 2 and not report.behind)
        assert (told.warning, told.url) == ("", url)
        assert told.size == sum(shard.size for one in manifests for shard in one.shards) + sum(
            (folder / one.name / "manifest.json").stat().st_size for one in manifests
        )
        proxy.rule = lambda _: Fault(status=503)
        runs.run(folder, 5, 7)
        told = until(tmp_path / "status", lambda report: report.behind == 2 and bool(report.warning))
        assert (told.step, told.behind_steps) == (2, 5)
    finally:
        uploader.finishing.set()
        proxy.rule = lambda _: None
        worker.join()
    assert steps(store) == [7, 5, 2, 1]
    kinds = {re.sub(r"step-\d+", "step", one) for one in said}  # the first of two snapshots may be tried alone
    assert (len(kinds), len(said)) == (2, len(set(said))), "each kind of failure is one line in the log"


def test_what_of_a_snapshot_is_there_is_told_while_the_rest_is_on_its_way(
    s3: S3, proxy: Proxy, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "INTERVAL", 0.0)
    (folder := tmp_path / "there").mkdir()
    rest = threading.Event()

    def holds_back(seen: Seen) -> None:
        if seen.path.endswith("manifest.json"):
            rest.wait()

    proxy.rule = holds_back
    uploader = Uploader(
        node=0,
        url=url,
        open=lambda: Mirror(
            Store(url, s3.environ(proxy.url)),
            Owner(run="run-1", job="digits", claim="a", host="pod", since=1.0),
            resume=False,
        ),
        folder=folder,
        run="run-1",
        retention=keeping(9),
        status=tmp_path / "status",
        log=quiet,
    )
    (manifest,) = runs.run(folder, 1)
    uploader.finishing.set()
    worker = threading.Thread(target=uploader.run_until_done)
    worker.start()
    try:
        told = until(tmp_path / "status", lambda report: report.behind == 1 and not report.behind_bytes)
        assert (told.step, told.behind_steps) == (None, 1)
    finally:
        rest.set()
        worker.join()
    assert until(tmp_path / "status", lambda report: report.step == manifest.step).behind == 0


def until(path: Path, check: Callable[[MirrorReport], bool]) -> MirrorReport:
    """The uploader's report, once it fulfils a condition; the test's own time limit ends the wait."""
    while True:
        if path.exists():
            report: MirrorReport = typed.load(MirrorReport, path.read_bytes())
            if check(report):
                return report
        threading.Event().wait(0.02)


def test_a_store_that_stays_away_is_unavailable(
    s3: S3, url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kittrain.rank.snapshots.mirror.store.RETRY_SECONDS", 0)
    proxy.rule = lambda _: Fault(status=503)
    with pytest.raises(MirrorUnavailableError, match=r"does not answer: .*503"):
        Store(url, s3.environ(proxy.url)).probe()
