"""Fixtures: a fake API server, and kitctl for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit

DEFAULT: Final = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.put("storageclasses", "shared", "", provisioner="nfs.example", metadata=DEFAULT)
        yield running


@pytest.fixture
def kit(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Kit:
    return Kit(server, tmp_path, capsys)
