"""Facts about a job from Kueue's objects: whether it waits, was admitted or stopped, and why. Pure.

Kueue makes a Workload for a job in a queue, reserves quota for it, and then resumes the job. It would start a job again
that was suspended by its own field, since its quota is still reserved: ``spec.active`` of the Workload stops it.

Why: decision 43.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from kitctl.base import names
from kitctl.kinds import of_object
from kitctl.state.facts import QueuePosition

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


def facts(
    job: Object, workload: Object | None, position: int | None = None, *, unmade: float = 0.0
) -> QueuePosition | None:
    """A job's position in its queue; None: it is in none.

    Args:
        job: its object.
        workload: its Workload; None: there is none, or this user may not read it.
        position: Workloads before it in the cluster queue, if known.
        unmade: seconds for which it is known to have no Workload; 0: not known.
    """
    if not (queue := queue_of(job)):
        return None
    if workload is None:
        waits = of_object(job).suspended(job)
        reason = (
            f"Kueue has made no Workload of the {of_object(job).resource} for {unmade:.0f} s"
            if unmade and waits
            else ""
        )
        return QueuePosition(name=queue, state="Waiting" if waits else "Admitted", reason=reason)
    state = _state(workload)
    place = None if position is None or state != "Waiting" else position + 1
    return QueuePosition(name=queue, state=state, position=place, reason=_reason(workload, state))


def is_scalable(job: Object) -> bool:
    """Whether Kueue lets it change its nodes while it runs: its webhook has then given its pods a scheduling gate."""
    gates = of_object(job).pod_template(job)["spec"].get("schedulingGates") or ()
    return any(gate["name"] == names.GATE_ELASTIC for gate in gates)


def forget_workload(job: Object) -> Object:
    """The patch that removes an earlier Workload's annotation from a suspended Indexed Job; empty: there is none.

    Kueue 0.15 does not start a job with such a mark, and leaves one behind when it stops a job that was scaled up.
    """
    kind = of_object(job)
    marked = names.ANNOTATION_WORKLOAD in kind.pod_template(job)["metadata"].get("annotations", {})
    if not (kind.queue_admits_fewer and marked):
        return {}
    return {"spec": {"template": {"metadata": {"annotations": {names.ANNOTATION_WORKLOAD: None}}}}}


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


def is_finished(workload: Object) -> bool:
    """Whether Kueue is done with it, also since it could not start the job."""
    return _holds(workload, "Finished")


def _state(workload: Object) -> Any:
    if is_finished(workload):
        return "Stopped" if _could_not_start(workload) else "Finished"
    if not is_active(workload):
        return "Stopped"
    return "Admitted" if _holds(workload, "Admitted") and not _holds(workload, "Evicted") else "Waiting"


def _reason(workload: Object, state: str) -> str:
    """Kueue's own message."""
    if state in {"Admitted", "Finished"}:
        return ""
    if _could_not_start(workload):
        return f"Kueue could not start it, kitctl restart does: {_message(workload, 'Finished')}"
    if state == "Stopped":
        evicted = _conditions(workload).get("Evicted", {})
        why = evicted.get("message", "") if evicted.get("reason", "").startswith("Deactivated") else ""
        return why if why != BY_USER else ""
    checks = [one for one in workload.get("status", {}).get("admissionChecks") or () if one["state"] != "Ready"]
    if has_quota(workload) and checks:
        return "; ".join(f"admission check {one['name']}: {one.get('message') or one['state']}" for one in checks)
    why = _message(workload, "QuotaReserved")
    if names.QUEUE_OF_UNRELEASED in why:
        return ""  # Kueue is about to look at its own queue
    preempted = _holds(workload, "Evicted") and _conditions(workload)["Evicted"].get("reason") == "Preempted"
    return f"preempted; {why}" if preempted and not why.startswith("Preempted") else why


def _could_not_start(workload: Object) -> bool:
    return bool(_conditions(workload).get("Finished", {}).get("reason") == "FailedToStart")


def _message(workload: Object, condition: str) -> str:
    return str(_conditions(workload).get(condition, {}).get("message", ""))


def _holds(workload: Object, condition: str) -> bool:
    return bool(_conditions(workload).get(condition, {}).get("status") == "True")


def _conditions(workload: Object) -> dict[str, Object]:
    return {one["type"]: one for one in workload.get("status", {}).get("conditions") or ()}


def _created(workload: Object) -> str:
    return str(workload["metadata"]["creationTimestamp"])
