"""Machines that lose their power: a worker of the cluster is stopped without a warning, and made whole again."""

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
    """A worker without power; at the end it has booted, and the cluster is whole."""
    with alone():  # else bringing up the cluster meanwhile would make it anew
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
    """Whether its kubelet has told so, and pods may be put there again: its taints go a moment later."""
    known = get("", "node", node)
    (ready,) = (one for one in known["status"]["conditions"] if one["type"] == "Ready")
    told = ready["status"] == "True" and datetime.fromisoformat(ready["lastHeartbeatTime"]) >= since
    return told and not known["spec"].get("taints")


def until_noticed(node: str) -> None:
    """Wait until Kubernetes knows that a node is off, and puts no pods there."""
    kubectl("wait", f"node/{node}", "--for=condition=Ready=unknown", "--timeout=120s")
