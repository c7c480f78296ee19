"""Jobs of both kinds train on the cluster to the end: beside each other, under any name, and in any DNS domain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.jobs import often, submit
from tests.cluster.kind.settings import SECOND_DOMAIN
from tests.cluster.kubectl import kubectl
from tests.cluster.toy import assert_complete_and_exact, submit_toy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

# The longest that leave room for the suffixes of two nodes.
LONGEST: Final = {"IndexedJob": "i" * (63 - len("-1")), "PyTorchJob": "p" * (63 - len("-worker-1"))}


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_twelve_ranks_on_three_nodes_learn_the_digits(namespace: str, kind: str) -> None:
    run = submit(namespace, kind, "--nodes", "3", "--gpus-per-node", "4")
    run.wait()
    logs = run.logs()
    assert set(re.findall(r"\[rank (\d+)\]: ", logs)) == {str(rank) for rank in range(12)}
    assert float(re.findall(r"accuracy ([\d.]+) %", logs)[-1]) > 90
    assert len({pod["spec"]["nodeName"] for pod in run.pods()}) == 3


def test_jobs_beside_each_other_under_any_name_and_in_another_domain(namespace: str, elsewhere: str) -> None:
    two = ("--nodes", "2")
    domain = ("--set", f"rendezvous.clusterDomain={SECOND_DOMAIN}")
    runs = [
        submit_toy(namespace, "IndexedJob", *two, epochs=1),
        submit_toy(elsewhere, "IndexedJob", *two, *domain, epochs=1),  # the same name
        *(submit_toy(namespace, kind, *two, name=name, epochs=1) for kind, name in LONGEST.items()),
    ]
    for run in runs:
        assert_complete_and_exact(run, epochs=1)
        assert len(run.report()["nodes"]) == 2


@pytest.fixture
def elsewhere(namespace: str) -> Iterator[str]:
    """Another namespace."""
    name = f"{namespace}-too"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
