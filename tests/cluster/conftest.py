"""Tests against a real cluster: `make test` creates it and runs them, `make test-long` runs the long ones."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster import controllers
from tests.cluster.kind import host
from tests.cluster.kind.settings import STATE
from tests.cluster.kind.steps import works
from tests.cluster.kubectl import kubectl

if TYPE_CHECKING:
    from tests.cluster.release import Release

# These files' tests run before all others, so that no worker waits for a long one at the end.
LONGEST: Final = (
    "faults/test_faults",
    "read/test_lifecycle",
    "submit/test_requirements",
    "kinds/test_training",
    "faults/test_drained",
    "kinds/test_kinds",
    "submit/test_workdir",
    "platform/test_kueue",
    "kinds/test_chart",
)
HERE: Final = Path(__file__).parent

collect_ignore_glob = [] if os.environ.get("KIT_CLUSTER_TESTS") == "1" else ["*test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs the cluster of `make cluster-up`")
    config.addinivalue_line("markers", f"controllers: needs {controllers.WHICH}: `make test-controllers` runs these")
    config.addinivalue_line("markers", "alone: cuts a node's power, so no other test may run on the cluster meanwhile")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and controllers.needed_by(item):
            item.add_marker("controllers")
    order = {HERE / f"{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    obstacle = host.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    if not works("kubectl", "get", "--raw", "/readyz"):
        pytest.fail("no cluster answers: make cluster-up")


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace for this test only."""
    with restricted_namespace() as name:
        yield name


@pytest.fixture(scope="session")
def empty_namespace() -> Iterator[str]:
    """A namespace that tests share which create nothing: deleting one is expensive for the API server."""
    with restricted_namespace() as name:
        yield name


@contextmanager
def restricted_namespace() -> Iterator[str]:
    """A namespace that enforces the strictest Pod Security profile."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def release(namespace: str, tmp_path: Path) -> Iterator[Release]:
    """A release of the platform chart for this namespace; not installed yet."""
    from tests.cluster.release import Release  # noqa: PLC0415 - it imports modules of tests

    made = Release(namespace, tmp_path)
    yield made
    made.uninstall()


@pytest.fixture
def gpus() -> Iterator[None]:
    """All simulated GPUs, for one test at a time. A lock, since pytest 9.2 ignores xdist's groups."""
    with (STATE / "gpus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
