"""Tests of the chart need helm: on the PATH, or where `make cluster-up` builds it."""

from __future__ import annotations

import pytest

from kitctl.code import trainer_package
from tests.charts.helm import HELM


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    if HELM is None:
        pytest.skip("no helm: install it (https://helm.sh), or build it with make cluster-up")
    trainer_package.load()  # packs the trainer where a source has changed, which helm does not
