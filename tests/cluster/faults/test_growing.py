"""An elastic job's pods that found no room join by themselves when room becomes free."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.commands import State, kitctl, until_status
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import FAKE_GPUS, TRAINER_IMAGE
from tests.cluster.kubectl import Object, apply, kubectl, until
from tests.cluster.test_cluster import RESTRICTED
from tests.cluster.toy import assert_complete_and_exact, has_trained, submit_toy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
EPOCHS = 40  # longer than the pods take to join


@pytest.fixture
def fillers(namespace: str, gpus: None) -> Iterator[list[str]]:  # noqa: ARG001  the GPUs of all nodes are ours
    """Pods that take the GPUs of all Kubernetes nodes."""
    names = ["filler-0", "filler-1", "filler-2"]
    for name in names:
        apply(namespace, filler(name))
    for name in names:
        kubectl("wait", "-n", namespace, f"pod/{name}", "--for=condition=PodScheduled", "--timeout=120s")
    yield names
    kubectl("delete", "pod", "-n", namespace, *names, "--ignore-not-found", "--grace-period=0", "--force")


def filler(name: str) -> Object:
    """A pod that takes all GPUs of some Kubernetes node."""
    container = {
        "name": "main",
        "image": pushed(TRAINER_IMAGE),
        "command": ["sleep", "900"],
        "resources": {"limits": {"nvidia.com/gpu": str(FAKE_GPUS)}},
        "securityContext": RESTRICTED,
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["IndexedJob", pytest.param("PyTorchJob", marks=pytest.mark.long)])  # can be scaled
def test_pending_pods_join_one_after_the_other(namespace: str, kind: str, fillers: list[str]) -> None:
    whole = ("--nodes", "1:3", "--gpus-per-node", str(FAKE_GPUS), "--procs-per-node", "1")
    run = submit_toy(namespace, kind, *whole, "--set", "policy.growEvery=2s", epochs=EPOCHS)
    kitctl("scale", run.name, "-n", namespace, "--nodes", "1")  # else any of the three might get the first room
    until(lambda: len(run.pods()) == 1)
    first, *others = fillers
    kubectl("delete", "pod", "-n", namespace, first)
    until(partial(has_trained, run, steps=5), seconds=300)
    kitctl("scale", run.name, "-n", namespace, "--nodes", "3")
    until(lambda: [pod["status"]["phase"] for pod in run.pods()].count("Pending") == 2)
    for ranks, name in enumerate(others, start=2):
        before = run.step()
        kubectl("delete", "pod", "-n", namespace, name)
        until_status(run.name, namespace, partial(has_ranks, ranks))
        until(partial(has_trained, run, generation=ranks, steps=before + 5), seconds=300)
    assert_complete_and_exact(run, epochs=EPOCHS)


def has_ranks(count: int, state: State) -> bool:
    return bool(state["worldSize"] == count)
