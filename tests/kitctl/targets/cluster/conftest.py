"""Fixtures: a fake API server, and kitctl for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kitctl.kinds import all_kinds
from kitctl.targets.cluster import rights
from kitctl.targets.cluster.rights import Right
from tests.kitctl.targets.cluster.apiserver import PATH, REVIEWS, VERBS, ApiServer, Request
from tests.kitctl.targets.cluster.clients import Kit

DEFAULT: Final = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.put("storageclasses", "shared", "", provisioner="nfs.example", metadata=DEFAULT)
        yield running
    assert {right for right in map(needed, running.requests) if right} - known() == set(), "rights.py lacks these"


def known() -> set[Right]:
    """All rights of the table; the roles of charts/platform have no others."""
    uses = rights.SUBMITTING + rights.AFTERWARDS + rights.QUEUEING + rights.CLUSTER_WIDE
    return rights.of(uses, all_kinds().values())


def needed(request: Request) -> Right | None:
    """The right that a request takes; None: everybody has it."""
    where = PATH.fullmatch(request.path)
    if where is None or where["plural"] in REVIEWS:
        return None
    verb = VERBS[request.method] if where["name"] or request.method != "GET" else "list"
    return Right(verb, where["group"] or "", where["plural"] + (f"/{where['sub']}" if where["sub"] else ""))


@pytest.fixture
def kit(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Kit:
    return Kit(server, tmp_path, capsys)
