"""Nodes that lose power: a worker of the cluster is stopped without warning, and restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tests.cluster.kind import cluster
from tests.cluster.kind.images import registry_answers
from tests.cluster.kind.steps import alone, run
from tests.cluster.kubectl import get, kubectl, until


@contextmanager
def powered_off(node: str) -> Iterator[None]:
    """A worker without power; afterwards it has booted, and the cluster is complete."""
    with alone():  # else `up` would create the cluster again meanwhile
        run("docker", "stop", "-t", "0", node)
        try:
            yield
        finally:
            _power_on(node)


def _power_on(node: str) -> None:
    since = datetime.now(UTC)
    run("docker", "start", node)
    if not registry_answers():
        cluster.network()  # its routes are gone
    until(lambda: _has_booted(node, since))
    cluster.fake_gpus()  # a kubelet that starts may forget them
    cluster.ready()


def _has_booted(node: str, since: datetime) -> bool:
    """Whether its kubelet reported so, and its taints, which go a moment later, are removed."""
    known = get("", "node", node)
    (ready,) = (one for one in known["status"]["conditions"] if one["type"] == "Ready")
    reported = ready["status"] == "True" and datetime.fromisoformat(ready["lastHeartbeatTime"]) >= since
    return reported and not known["spec"].get("taints")


def until_noticed(node: str) -> None:
    """Wait until Kubernetes has noticed that a node is off, and schedules no pods there."""
    kubectl("wait", f"node/{node}", "--for=condition=Ready=unknown", "--timeout=120s")
