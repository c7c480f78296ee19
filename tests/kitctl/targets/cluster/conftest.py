"""Fixtures: a fake API server, and kitctl for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kitctl.kinds import all_kinds
from kitctl.targets.cluster.checks import rights
from kitctl.targets.cluster.checks.rights import Right
from tests.kitctl.targets.cluster.apiserver import ApiServer, needed_right
from tests.kitctl.targets.cluster.clients import Kit

DEFAULT: Final = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.put("storageclasses", "shared", "", provisioner="nfs.example", metadata=DEFAULT)
        yield running
    asked = {needed_right(one.method, one.path) for one in running.requests}
    assert asked - known() <= {None}, "rights.py lacks these"


def known() -> set[Right]:
    """All rights of the table; the roles of charts/platform have no others, and not that to word an error."""
    uses = rights.SUBMITTING + rights.AFTERWARDS + rights.QUEUEING + rights.CLUSTER_WIDE + rights.WORDING
    return rights.of(uses, all_kinds().values())


@pytest.fixture
def kit(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Kit:
    return Kit(server, tmp_path, capsys)
