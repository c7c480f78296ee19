"""The objects of a mirror, on a real S3 server."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from kittrain.rank.snapshots.mirror import store as stores
from kittrain.rank.snapshots.mirror.errors import MirrorDamagedError, MirrorError, MirrorUnavailableError
from kittrain.rank.snapshots.mirror.store import Conflict, Store
from tests.s3 import S3, SECRET
from tests.s3_proxy import Fault, Seen, in_front_of
from tests.trainer.nodes import free_port

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server


def test_an_object_is_created_once_and_replaced_only_as_it_was_read(store: Store) -> None:
    assert store.read("a") is None
    store.create("a", b"1")
    with pytest.raises(Conflict):
        store.create("a", b"2")
    found = store.read("a")
    assert found
    store.replace("a", b"3", found[1])
    with pytest.raises(Conflict):
        store.replace("a", b"4", found[1])
    with pytest.raises(Conflict):
        store.replace("never", b"4", found[1])
    assert (store.read("a") or (b"",))[0] == b"3"


@pytest.mark.parametrize("size", [0, 1, stores.PART, 3 * stores.PART + 5])
def test_a_file_comes_back_as_it_was(store: Store, tmp_path: Path, size: int) -> None:
    (tmp_path / "there").write_bytes(b"x" * size)
    digest = store.upload("data/a", tmp_path / "there")
    assert digest == hashlib.sha256(b"x" * size).hexdigest()
    store.download("data/a", tmp_path / "back", size=size, digest=digest)
    assert (tmp_path / "back").read_bytes() == b"x" * size


def test_parts_count_as_taken_once_the_store_has_them(s3: S3, url: str, tmp_path: Path) -> None:
    """The first one stays on its way as long as it can: what is told is what the others have."""
    part, sent = stores.PART, 0
    (tmp_path / "there").write_bytes(b"x" * (4 * part + 5))
    told: list[int] = []

    def rule(seen: Seen) -> Fault | None:
        nonlocal sent
        sent += "partNumber" in seen.path
        return Fault(delay=1.0) if "partNumber=1&" in seen.path else None

    def taken(count: int) -> None:
        told.append(count)
        assert count <= max(0, sent - stores.PARALLEL + 1) * part or count == 4 * part + 5

    with in_front_of(s3.url) as proxy:
        proxy.rule = rule
        Store(url, s3.environ(proxy.url)).upload("data/a", tmp_path / "there", taken)
    assert told == [part, 2 * part, 2 * part + 5, 4 * part + 5]


def test_what_differs_is_damage(s3: S3, store: Store, url: str, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"12345")
    digest = store.upload("data/a", tmp_path / "there")
    (s3.root / url.removeprefix("s3://") / "data" / "a").write_bytes(b"12x45")
    with pytest.raises(MirrorDamagedError, match="data/a differs from what was uploaded"):
        store.download("data/a", tmp_path / "back", size=5, digest=digest)
    with pytest.raises(MirrorDamagedError, match="data/none is missing"):
        store.download("data/none", tmp_path / "none", size=5, digest=digest)
    assert [path.name for path in tmp_path.iterdir()] == ["there"], "nothing is left that somebody might read"


def test_deleting_and_listing(store: Store) -> None:
    for key in ("data/a", "data/b", "other"):
        store.put(key, b"1")
    store.delete("data/a", "data/never")
    assert store.list("data") == ["data/b"]


def test_the_probe_leaves_nothing(store: Store) -> None:
    store.probe()
    assert store.list("") == []


def test_a_bucket_that_is_not_there(s3: S3) -> None:
    with pytest.raises(MirrorError, match=r"s3://nowhere/run: the bucket does not exist \(NoSuchBucket\); fix: create"):
        Store("s3://nowhere/run", s3.environ()).probe()
    with pytest.raises(MirrorError, match="NoSuchBucket"):
        Store("s3://nowhere/run", s3.environ()).read("mirror.json")


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "the store does not know the access key"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key is not that of the access key"),
    ],
)
def test_wrong_credentials_are_told_without_them(
    s3: S3, url: str, changed: dict[str, str], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3.environ(), **changed}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MirrorError, match=rf"{cause}.*fix: give the pods AWS_ACCESS_KEY_ID") as raised:
        Store(url).probe()
    assert SECRET not in str(raised.value)
    assert "wrong" not in str(raised.value)
    assert "Signature=" not in str(raised.value)


def test_a_server_that_is_not_there(s3: S3, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RETRY_SECONDS", 0)
    with pytest.raises(MirrorUnavailableError, match="does not answer"):
        Store(url, s3.environ(f"http://127.0.0.1:{free_port()}")).read("a")


@pytest.mark.parametrize("endpoint", ["not-a-url", "http://", "store:9000", "http://a b", "ftp://store"])
def test_an_endpoint_that_is_no_address_is_told(endpoint: str) -> None:
    with pytest.raises(MirrorError, match=r"AWS_ENDPOINT_URL: .* is no address; fix: give one"):
        Store("s3://bucket/run", {"AWS_ENDPOINT_URL": endpoint})


@pytest.mark.parametrize("endpoint", ["http://store:9000", "https://s3.example/path", "http://[::1]:9000"])
def test_an_endpoint_that_is_one(endpoint: str) -> None:
    assert Store("s3://bucket/run", {"AWS_ENDPOINT_URL": endpoint}).url == "s3://bucket/run"


def test_without_the_library_the_fix_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MirrorError, match=r"needs the Python package obstore.*fix: add obstore to the requirements"):
        Store("s3://bucket/run", {})
