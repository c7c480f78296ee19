"""What loses power: a worker of the cluster is stopped without warning, and restored; pods end without a last word."""

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


def delete_silenced(namespace: str, *pods: str) -> None:
    """Delete pods whose processes stand still: kubelet gives each pod at least two seconds, in which it may drain."""
    for name in pods:
        pod = get(namespace, "pod", name)
        words = f"pod{pod['metadata']['uid'].replace('-', '_')}"
        stop = f"grep -ls {words} /proc/[0-9]*/cgroup | cut -d/ -f3 | xargs kill -STOP"
        run("docker", "exec", pod["spec"]["nodeName"], "sh", "-c", stop)
    kubectl("delete", "pod", *pods, "-n", namespace, "--grace-period=0", "--force")


def until_noticed(node: str) -> None:
    """Wait until Kubernetes has noticed that a node is off, and schedules no pods there."""
    kubectl("wait", f"node/{node}", "--for=condition=Ready=unknown", "--timeout=120s")
