"""Nodes that are none, for tests of many pods: kwok says of each pod that is put on one that it runs.

Nothing runs: no container, no network, no log. The scheduler and the controllers are the real ones.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.kind.programs import source
from tests.cluster.kind.settings import ENVIRON, KUBECONFIG
from tests.cluster.kind.steps import works
from tests.cluster.kubectl import Object, apply, kubectl, until

# What a pod needs to be put there; a pod without it never is.
NODE_SELECTOR: Final = {"kitctl.test/fake": "node"}
TOLERATIONS: Final[list[dict[str, str]]] = [{"key": "kitctl.test/fake", "operator": "Exists", "effect": "NoSchedule"}]

_LABEL: Final = "kitctl.test/fake=node"
_PLENTY: Final = {"cpu": "1k", "memory": "1Ti", "pods": "1k"}
# Without kwok's `pod-complete`, which would end a Job's pods as soon as they run.
_STAGES: Final = ("pod-ready", "pod-delete")


@contextmanager
def fake_nodes(count: int, namespace: str, log: Path) -> Iterator[None]:
    """So many fake nodes, ready, for the jobs of a namespace; ``log`` is kwok's own.

    Afterwards the nodes are gone, and so are that namespace's Jobs and pods: only while kwok runs do they go quickly.
    """
    _delete_nodes()  # of a run that was killed
    stages = ",".join(str(source("kwok") / f"kustomize/stage/pod/fast/{name}.yaml") for name in _STAGES)
    options = ("--manage-all-nodes=false", f"--manage-nodes-with-label-selector={_LABEL}", "--config", stages)
    command = ["kwok", "--kubeconfig", str(KUBECONFIG), *options]
    with log.open("w") as output, subprocess.Popen(command, env=ENVIRON, stdout=output, stderr=output) as kwok:
        try:
            apply("default", *map(_node, range(count)))
            kubectl("wait", "node", "-l", _LABEL, "--for=condition=Ready", "--timeout=60s")
            yield
            kubectl("delete", "job", "--all", "-n", namespace)
            # The pods by one request, which may end early: the garbage collector takes one for each.
            pods = f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0"
            until(lambda: works("kubectl", "delete", "--raw", pods, seconds=60) and not _names(namespace), seconds=240)
        finally:
            kwok.terminate()
            _delete_nodes()


def _names(namespace: str) -> str:
    return kubectl("get", "pods", "-n", namespace, "--no-headers")


def _delete_nodes() -> None:
    kubectl("delete", "node", "-l", _LABEL)


def _node(index: int) -> Object:
    taint = {"key": "kitctl.test/fake", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"fake-{index:03}", "labels": NODE_SELECTOR},
        "spec": {"taints": [taint]},
        "status": {"capacity": _PLENTY, "allocatable": _PLENTY},
    }
