"""Why a pod, or a whole job, is not simply running, in a sentence: read from what Kubernetes wrote about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kitctl import names
from kitctl.targets.cluster import lifecycle

Object = dict[str, Any]
UNREMARKABLE: Final = frozenset({"Completed", "Error", "ContainerCreating", "PodInitializing"})
# Declares a node's pods failed. Deleting one by force does not: the Job controller still waits to see how it ended.
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
SLACK_SECONDS: Final = 15.0  # from the end of the grace period until a pod that is still there is stuck

OUT_OF_MEMORY: Final = "OOMKilled"
MORE_MEMORY: Final = "raise resources.limits.memory, or hold less: fewer data loader workers, smaller batches"

# Waiting reasons that a person has to cure, and how.
CURES: Final = {
    "ErrImagePull": "check the image's name, and the cluster's right to pull it",
    "ImagePullBackOff": "check the image's name, and the cluster's right to pull it",
    "InvalidImageName": "check the image's name",
    "CreateContainerConfigError": "create the Secret or ConfigMap that it names",
}


def of_pod(pod: Object, state: Object, now: float) -> str:
    """Why a pod is not simply running; empty if it is. ``state`` is that of the container that trains."""
    return next(_pod_notes(pod, state, now), "")


def of_job(job: Object, events: Sequence[Object]) -> str:
    """Why a job has no pods: half submitted, waiting in a queue, or what its controllers warned of last."""
    if lifecycle.waits_for_release(job):
        return "its submit was cut short: run it again, or kitctl delete"
    if queue := job["metadata"].get("labels", {}).get(names.LABEL_QUEUE):
        return f"waits in queue {queue}" if _waits(job) else ""
    latest = max(events, key=_time, default=None)
    return told(latest) if latest else ""


def told(condition: Mapping[str, Any]) -> str:
    """``Reason: message`` of a condition, an event or a container's state."""
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))


def _pod_notes(pod: Object, state: Object, now: float) -> Iterator[str]:
    """The most telling first."""
    yield from _leaving(pod, state, now)
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions") or []}
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        yield told(scheduled)
    waiting = state.get("waiting") or {}
    if waiting and waiting.get("reason") not in UNREMARKABLE:
        cure = CURES.get(waiting.get("reason", ""), "")
        yield told(waiting) + (f" ({cure})" if cure else "")
    ended = state.get("terminated") or {}
    if ended.get("reason", "Error") not in UNREMARKABLE:
        yield f"{ended['reason']} (exit code {ended['exitCode']}{_limit(pod, ended['reason'])})"
    if disruption := conditions.get("DisruptionTarget"):
        yield told(disruption)
    if pod["status"].get("reason"):  # Evicted, NodeLost: the kubelet's, or the node controller's
        yield told(pod["status"])


def _leaving(pod: Object, state: Object, now: float) -> Iterator[str]:
    """A pod that is being deleted; stuck if nobody has confirmed its end within its grace period."""
    if (since := pod["metadata"].get("deletionTimestamp")) is None:
        return
    if now < datetime.fromisoformat(since).timestamp() + SLACK_SECONDS:  # the time when its grace period is over
        yield "is being deleted"
        return
    if "terminated" in state:  # so its kubelet has told; what holds the pod is the controller's mark (finalizer) on it
        yield "has ended, and is replaced once Kubernetes' Job controller takes note of it: up to ten minutes"
        return
    node = pod["spec"].get("nodeName", "its node")
    yield (
        f"its end is not confirmed, since {node} does not answer; it is replaced once {node} is back, or soon after "
        f"kubectl taint node {node} {OUT_OF_SERVICE} (only if {node} is really off, and until it is back)"
    )


def _limit(pod: Object, reason: str) -> str:
    """The limit that a container was ended for."""
    containers = pod.get("spec", {}).get("containers", []) if reason == OUT_OF_MEMORY else []
    limits = (one.get("resources", {}).get("limits", {}) for one in containers if one["name"] == names.CONTAINER)
    return next((f", the limit is {limit['memory']}" for limit in limits if "memory" in limit), "")


def _waits(job: Object) -> bool:
    spec = job["spec"]
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
