from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.kubernetes import ApiServer, identity_in, serving


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identity_in(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(identity: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with serving(identity, tmp_path, monkeypatch) as api:
        yield api
