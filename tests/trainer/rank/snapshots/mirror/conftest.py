"""An S3 server for the tests of this folder, and a prefix of a bucket for each of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kittrain.rank.snapshots.mirror.store import Store
from tests.s3 import S3, serving

BUCKET = "mirrors"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server with one bucket."""
    with serving(tmp_path_factory.mktemp("s3")) as server:
        server.bucket(BUCKET)
        yield server


@pytest.fixture
def url() -> str:
    """A prefix of its own."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/run"


@pytest.fixture
def store(s3: S3, url: str) -> Store:
    """What is under that prefix."""
    return Store(url, s3.environ())
