"""The events of a job's object, as far as this user may read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kitctl.base.errors import Forbidden
from kitctl.kinds import of_object
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import conditions, job_facts
from kitctl.targets.cluster.read.conditions import format_condition, is_unbound, time_of

OF_CONTAINERS: Final = frozenset({"Failed", "BackOff"})  # their status says the same soon, and more
PAST: Final = "FailedScheduling"  # of a pod that has its machine by now
PULLS: Final = frozenset({"Pulling", "Pulled"})  # of an image: by then the pod has its volumes and its network
STARTS: Final = ("Scheduled", "Started")  # of a pod, and of its container
PREEMPTED: Final = "involvedObject.kind=Pod,reason=Preempted"
KILLED: Final = re.compile(r"(?:Liveness|Startup) probe failed")
NO_IMAGE: Final = re.compile(r"pull.*(?:: not found|manifest unknown)", re.DOTALL)
BINDS: Final = "ProvisioningSucceeded"  # of a claim
WAITS: Final = frozenset({"ExternalProvisioning", "Provisioning", "WaitForFirstConsumer", "WaitForPodScheduled"})
MAX_STUCK: Final = 3  # pods whose events are read: those of one job mostly lack the same


def warning_events(api: Api, job: Object) -> Sequence[Object]:
    """The warning events of this job; not those of earlier ones of its name."""
    where, creator = job["metadata"], of_object(job).pod_owner(job["metadata"]["name"])
    found: list[Object] = []
    with suppress(Forbidden):
        found += _warnings(api, where["namespace"], f"involvedObject.uid={where['uid']}")
        if creator != where["name"]:
            theirs = _warnings(api, where["namespace"], f"involvedObject.name={creator}")
            found += (one for one in theirs if time_of(one) >= where["creationTimestamp"])
    return found


def starts(api: Api, namespace: str) -> Sequence[Object]:
    """The events that say when pods got their machine, and when their ranks' container started."""
    found: list[Object] = []
    with suppress(Forbidden):
        for reason in STARTS:
            found += api.select("Event", namespace, fieldSelector=f"involvedObject.kind=Pod,reason={reason}")
    ours = tuple(f"{{{name}}}" for name in job_facts.CONTAINERS)
    return [one for one in found if one["reason"] != "Started" or _container(one).endswith(ours)]


def stuck_pods(api: Api, pods: Sequence[Object]) -> dict[str, str]:
    """By name, the latest warning about pods that do not start, as for a volume, or that a probe has ended: of a few.

    Their status says only that containers are being created, that no scheduler has looked at them, or how they ended.
    """
    silent = [pod for pod in pods if _is_creating(pod) or conditions.is_unseen(pod) or _was_probed(pod)][:MAX_STUCK]
    found = {}
    with suppress(Forbidden):
        if unbound := next(filter(is_unbound, pods), None):
            found[unbound["metadata"]["name"]] = _of_claims(api, unbound)
        found |= _preempted(api, [pod for pod in pods if _has_no_machine(pod)])
        found |= _missing_images(api, [pod for pod in pods if conditions.pull_error(pod)][:MAX_STUCK])
        for pod in silent:
            said = api.select(
                "Event", pod["metadata"]["namespace"], fieldSelector=f"involvedObject.uid={pod['metadata']['uid']}"
            )
            prepared = max((time_of(one) for one in said if one.get("reason") in PULLS), default="")
            warnings = [one for one in said if one.get("type") != "Normal"]
            others = (one for one in warnings if one.get("reason") not in {*OF_CONTAINERS, PAST})
            killed = (one for one in warnings if KILLED.match(one.get("message", "")))
            latest = max(killed if _was_probed(pod) else others, key=time_of, default=None)
            if latest and (_was_probed(pod) or time_of(latest) > prepared):
                found[pod["metadata"]["name"]] = format_condition(latest)
    return found


def _missing_images(api: Api, pods: Sequence[Object]) -> dict[str, str]:
    """By name, that a registry has no such image: where it, or another of its addresses, says something else later."""
    found = {}
    for pod in pods:
        said = _warnings(api, pod["metadata"]["namespace"], f"involvedObject.uid={pod['metadata']['uid']}")
        missing = (one["message"] for one in said if NO_IMAGE.search(one.get("message", "")))
        now = conditions.pull_error(pod)
        if (told := next(missing, "")) and not NO_IMAGE.search(now):
            whose, _, _ = re.split(f"({'|'.join(conditions.PULL_ERRORS)})", now, maxsplit=1)
            found[pod["metadata"]["name"]] = f"{whose}ErrImagePull: {told}"
    return found


def _preempted(api: Api, pods: Sequence[Object]) -> dict[str, str]:
    """By name, that the pod before was preempted: it is gone, and with it its condition that says so."""
    said = api.select("Event", pods[0]["metadata"]["namespace"], fieldSelector=PREEMPTED) if pods else ()
    found = {}
    for event in sorted(said, key=time_of):
        for pod in pods:
            before, where = event["involvedObject"]["name"], pod["metadata"]
            same = where.get("generateName") and before.rpartition("-")[0] == where["generateName"].removesuffix("-")
            if same and time_of(event) <= where["creationTimestamp"] and before != where["name"]:
                found[where["name"]] = format_condition(event)
    return found


def _has_no_machine(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions) and not is_unbound(pod)


def _of_claims(api: Api, pod: Object) -> str:
    """What is said last of a pod's claims that have no volume: the scheduler only says that there are some.

    Of a claim that fails before one that waits. Events of the time before a claim had its volume stay.
    """
    namespace, found = pod["metadata"]["namespace"], []
    named = (one.get("persistentVolumeClaim", {}).get("claimName", "") for one in pod["spec"].get("volumes") or [])
    for claim in filter(None, named):
        about = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}"
        latest = max(api.select("Event", namespace, fieldSelector=about), key=time_of, default=None)
        if latest and latest.get("reason") != BINDS and not _is_bound(api, namespace, claim):
            found.append((claim, latest))
    if not found:
        return ""
    claim, latest = min(found, key=lambda one: one[1].get("reason") in WAITS)
    return f"claim {claim} has no volume: {format_condition(latest)}"


def _is_bound(api: Api, namespace: str, claim: str) -> bool:
    """Whether a claim is known to have its volume."""
    with suppress(Forbidden):
        known = api.find("PersistentVolumeClaim", namespace, claim)
        return known is not None and known.get("status", {}).get("phase") == "Bound"
    return False


def _is_creating(pod: Object) -> bool:
    status = pod["status"]
    waiting = [one.get("state", {}).get("waiting") or {} for one in status.get("containerStatuses", [])]
    return status.get("phase") == "Pending" and any(one.get("reason") == "ContainerCreating" for one in waiting)


def _was_probed(pod: Object) -> bool:
    """Whether the ranks' container has ended, which a probe may have killed."""
    probed = any(
        "livenessProbe" in one or "startupProbe" in one for one in (pod.get("spec") or {}).get("containers") or []
    )
    return probed and "terminated" in job_facts.container_status(pod).get("state", {})


def _container(event: Object) -> str:
    return str(event["involvedObject"].get("fieldPath", ""))


def _warnings(api: Api, namespace: str, about: str) -> list[Object]:
    return api.select("Event", namespace, fieldSelector=f"type=Warning,{about}")
