"""Jobs of each kind train to the end: several at once, with any name, and in any DNS domain."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.commands import status, until_status
from tests.cluster.jobs import Run, often
from tests.cluster.kind.settings import KUBECONFIG, SECOND_DOMAIN
from tests.cluster.kubectl import kubectl
from tests.cluster.toy import assert_complete_and_exact, submit_toy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

# The longest names that allow the suffixes of two nodes.
LONGEST: Final = {"IndexedJob": "i" * (63 - len("-1")), "PyTorchJob": "p" * (63 - len("-worker-1"))}


@pytest.mark.usefixtures("gpus", "own_kubeconfig")
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_twelve_ranks_on_three_nodes_learn_the_digits(namespace: str, kind: str) -> None:
    """With the README's first command: without an image, a name or a namespace."""
    more = () if kind == "IndexedJob" else ("--kind", kind)
    output = here("submit", "--nodes", "3", "--gpus-per-node", "4", *more)
    (name,) = re.findall(r"job '(digits-\w+)' submitted", output)
    run = Run(namespace=namespace, name=name, kind=kind)
    until_status(name, namespace, lambda state: state["worldSize"] == 12 and state["progress"]["loss"])
    assert sorted(node["ranks"] for node in status(name, namespace)["nodes"]) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    page = here("status", name)
    assert re.search(r"Progress +epoch \d/5  step \d+/225 .* loss \d", page), page
    here("doctor", name)

    followed = here("logs", "-f", name)  # to the end
    assert set(re.findall(r"^\[rank (\d+)\]: ", followed, re.MULTILINE)) == {str(rank) for rank in range(12)}
    run.wait()
    assert float(re.findall(r"accuracy ([\d.]+) %", run.logs())[-1]) > 90
    assert re.search(r"Snapshot +step 225, in claim", here("status", name))
    seventh = here("logs", name, "--rank", "7").splitlines()
    assert seventh
    assert all(line.startswith("[rank 7]: ") for line in seventh)
    assert_each_pod_has_the_logs_of_its_ranks(run)


def here(*words: str) -> str:
    """Output of the command line with the user's own kubeconfig."""
    done = subprocess.run([sys.executable, "-m", "kitctl", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_each_pod_has_the_logs_of_its_ranks(run: Run) -> None:
    pods = run.pods()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    for index, assignment in run.report()["nodes"].items():
        text = kubectl("logs", "-n", run.namespace, assignment["pod"])
        ranks = set(map(int, re.findall(r"^\[rank (\d+)\]: ", text, re.MULTILINE)))
        assert ranks == set(range(4 * int(index), 4 * int(index) + 4))


@pytest.mark.long
def test_concurrent_jobs_with_any_name_and_another_domain(namespace: str, elsewhere: str) -> None:
    two = ("--nodes", "2")
    domain = ("--set", f"rendezvous.clusterDomain={SECOND_DOMAIN}")
    runs = [
        submit_toy(elsewhere, "IndexedJob", *two, *domain, name=LONGEST["IndexedJob"], epochs=1),  # the same name
        *(submit_toy(namespace, kind, *two, name=name, epochs=1) for kind, name in LONGEST.items()),
    ]
    for run in runs:
        assert_complete_and_exact(run, epochs=1)
        assert len(run.report()["nodes"]) == 2


@pytest.fixture
def own_kubeconfig(namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own kubeconfig with this namespace."""
    path = tmp_path / "kubeconfig"
    path.write_bytes(KUBECONFIG.read_bytes())
    kubectl("config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={path}")
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KITCTL_TARGET", raising=False)


@pytest.fixture
def elsewhere(namespace: str) -> Iterator[str]:
    """Another namespace."""
    name = f"{namespace}-too"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
