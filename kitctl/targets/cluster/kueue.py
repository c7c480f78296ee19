"""What Kueue's objects say about a job: whether it waits, was admitted or stopped, and why. Pure.

Kueue makes a Workload for a job in a queue, reserves quota for it, and then resumes the job. It would start a job again
that was suspended by its own field, since its quota is still reserved: ``spec.active`` of the Workload stops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from kitctl import names
from kitctl.facts import QueueFacts
from kitctl.kinds import of_object

Object: TypeAlias = dict[str, Any]
STOP: Final[Object] = {"spec": {"active": False}}  # Kueue suspends the job, and frees its quota once no pod runs
BY_USER: Final = "The workload is deactivated"  # Kueue adds why if it did so itself
START: Final[Object] = {"spec": {"active": True}}  # back into the queue

ALL_OR_NOTHING: Final[Object] = {  # of a job: no longer admitted with fewer nodes than it asks for
    "metadata": {"annotations": {names.ANNOTATION_MIN_PARALLELISM: None}}
}


def queue_of(job: Object) -> str:
    """The queue of a job; empty: none."""
    return str(job["metadata"].get("labels", {}).get(names.LABEL_QUEUE, ""))


def workload_of(job: Object, workloads: Sequence[Object]) -> Object | None:
    """The Workload that decides now: after scaling up, a job has its admitted one, and a newer one that waits."""
    uid = job["metadata"]["uid"]
    own = [one for one in workloads if one["metadata"].get("labels", {}).get(names.LABEL_JOB_UID) == uid]
    open_ones = [one for one in own if not _holds(one, "Finished")] or own
    admitted = [one for one in open_ones if _holds(one, "Admitted")]
    return max(admitted or open_ones, key=_created, default=None)


def facts(job: Object, workload: Object | None, position: int | None = None) -> QueueFacts | None:
    """Where a job stands in its queue; None: it is in none.

    Args:
        job: its object.
        workload: its Workload; None: there is none, or this user may not read it.
        position: Workloads before it in the cluster queue, if known.
    """
    if not (queue := queue_of(job)):
        return None
    if workload is None:
        waits = of_object(job).suspended(job)
        return QueueFacts(name=queue, state="Waiting" if waits else "Admitted")
    state = _state(workload)
    place = None if position is None or state != "Waiting" else position + 1
    return QueueFacts(name=queue, state=state, position=place, reason=_reason(workload, state))


def is_scalable(job: Object) -> bool:
    """Whether Kueue lets it change its nodes while it runs: its webhook has then given its pods a scheduling gate."""
    gates = of_object(job).pod_template(job)["spec"].get("schedulingGates") or ()
    return any(gate["name"] == names.GATE_ELASTIC for gate in gates)


def position_of(workload: Object, pending: Sequence[Object]) -> int | None:
    """How many Workloads come before one in the cluster queue; None: it does not wait there."""
    name = workload["metadata"]["name"]
    found = (one for one in pending if one["metadata"]["name"] == name)
    return next((int(one["positionInClusterQueue"]) for one in found), None)


def is_active(workload: Object) -> bool:
    """Whether it may be admitted."""
    return bool(workload["spec"].get("active", True))


def has_quota(workload: Object) -> bool:
    """Whether quota is reserved for it."""
    return _holds(workload, "QuotaReserved")


def _state(workload: Object) -> Any:
    if not is_active(workload):
        return "Stopped"
    return "Admitted" if _holds(workload, "Admitted") and not _holds(workload, "Evicted") else "Waiting"


def _reason(workload: Object, state: str) -> str:
    """Kueue's own words."""
    if state == "Admitted":
        return ""
    if state == "Stopped":
        evicted = _conditions(workload).get("Evicted", {})
        why = evicted.get("message", "") if evicted.get("reason", "").startswith("Deactivated") else ""
        return why if why != BY_USER else ""
    checks = [one for one in workload.get("status", {}).get("admissionChecks") or () if one["state"] != "Ready"]
    if has_quota(workload) and checks:
        return "; ".join(f"admission check {one['name']}: {one.get('message') or one['state']}" for one in checks)
    return _message(workload, "QuotaReserved")


def _message(workload: Object, condition: str) -> str:
    return str(_conditions(workload).get(condition, {}).get("message", ""))


def _holds(workload: Object, condition: str) -> bool:
    return bool(_conditions(workload).get(condition, {}).get("status") == "True")


def _conditions(workload: Object) -> dict[str, Object]:
    return {one["type"]: one for one in workload.get("status", {}).get("conditions") or ()}


def _created(workload: Object) -> str:
    return str(workload["metadata"]["creationTimestamp"])
