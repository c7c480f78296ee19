"""From a job's Kubernetes objects to ``JobFacts``. Pure: the objects come as the API server wrote them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kitctl import environment, names
from kitctl.facts import JobFacts, NodeFacts, Report, Termination
from kitctl.targets.cluster import notes
from kitctl.targets.cluster.lifecycle import noted

Object: TypeAlias = dict[str, Any]
End: TypeAlias = Literal["Succeeded", "Failed", "Cancelled"]

# Which condition of either kind ends a job, and how. The interim ones come a moment before the last.
ENDS: Final[dict[str, End]] = {
    "Complete": "Succeeded",
    "SuccessCriteriaMet": "Succeeded",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
    "FailureTarget": "Failed",
}
INDEXES: Final = (names.ANNOTATION_JOB_INDEX, names.LABEL_REPLICA_INDEX)  # labels, set by either controller


def job_facts(
    job: Object,
    pods: Sequence[Object],
    report: Report | None,
    *,
    target: str,
    now: float,
    events: Sequence[Object] = (),
) -> JobFacts:
    """What is known about a job from itself, its pods, its report and, where pods are missing, its warnings."""
    nodes = _nodes(job, pods, now)
    how, ended, message = end(job)
    return JobFacts(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        target=target,
        kind="IndexedJob" if job["kind"] == "Job" else job["kind"],
        node_range=size(job),
        desired_nodes=wanted(job),
        created=seconds(job["metadata"]["creationTimestamp"]),
        suspended=suspended(job),
        result=how,
        ended=ended,
        failure=_failure(nodes, pods, message, now) if how == "Failed" else None,
        nodes=nodes,
        report=report,
        reports=bool(environment.read_agent_spec(variables(job)).get("report")),
        grace_seconds=grace(job),
        snapshots=f"claim {claim(job)}" if claim(job) else "",
        note=notes.of_job(job, events),
    )


def size(job: Object) -> str:
    """How many nodes the job was submitted for: ``3``, or ``2:4``."""
    if job["kind"] == "Job":
        return variables(job).get(names.PET_NNODES, str(wanted(job)))
    policy = job["spec"].get("elasticPolicy", {})
    low, high = (policy.get(key, wanted(job)) for key in ("minReplicas", "maxReplicas"))
    return str(high) if low == high else f"{low}:{high}"


def wanted(job: Object) -> int:
    """How many nodes are wanted now."""
    spec = job["spec"]
    count: int = spec["parallelism"] if job["kind"] == "Job" else spec["pytorchReplicaSpecs"]["Worker"]["replicas"]
    return count


def suspended(job: Object) -> bool:
    """Whether the job is not to run now."""
    holder = job["spec"] if job["kind"] == "Job" else job["spec"].get("runPolicy", {})
    return bool(holder.get("suspend", False))


def claim(job: Object) -> str:
    """The claim that its snapshots are on; empty if it keeps none."""
    volumes = template(job)["spec"].get("volumes", [])
    claims = {volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName", "") for volume in volumes}
    found: str = claims.get("snapshots", "")
    return found


def end(job: Object) -> tuple[End | None, float | None, str]:
    """How it has ended, when (Unix seconds), and what its controller said; None while it has not."""
    if cancelled := noted(job).get(names.ANNOTATION_CANCELLED):
        return "Cancelled", seconds(cancelled), ""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in ENDS and condition["status"] == "True":
            return ENDS[condition["type"]], seconds(condition["lastTransitionTime"]), notes.told(condition)
    return None, None, ""


def run(job: Object) -> str:
    """What tells a PyTorchJob's run from others of the same job; an Indexed Job's uid does that."""
    identity: str = job["spec"].get("elasticPolicy", {}).get("rdzvId", "")
    return identity.removeprefix(f"{job['metadata']['name']}-")


def grace(job: Object) -> float:
    """Seconds from SIGTERM to SIGKILL for each of its pods."""
    return float(template(job)["spec"].get("terminationGracePeriodSeconds", 30))


def variables(job: Object) -> dict[str, str]:
    """The plain variables of the job's container."""
    container = template(job)["spec"]["containers"][0]
    return {variable["name"]: variable["value"] for variable in container.get("env", []) if "value" in variable}


def template(job: Object) -> Object:
    """The pod template of either kind."""
    spec: Object = job["spec"]
    found: Object = spec["template"] if job["kind"] == "Job" else spec["pytorchReplicaSpecs"]["Worker"]["template"]
    return found


def index(pod: Object) -> int | None:
    """Which node a pod is."""
    labels = pod["metadata"].get("labels", {})
    return next((int(labels[name]) for name in INDEXES if name in labels), None)


def container(pod: Object) -> Object:
    """The status of the container that trains; empty before it is known."""
    found = pod["status"].get("containerStatuses", [])
    return next((one for one in found if one["name"] == names.CONTAINER), {})


def has_logs(pod: Object) -> bool:
    """Whether its container has run, ever."""
    status = container(pod)
    return bool(status.get("state", {}).keys() & {"running", "terminated"})


def loses_logs(pod: Object) -> bool:
    """Whether it has ended and is being deleted: its kubelet may have removed what it logged already."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not running(pod)


def started(pod: Object) -> float | None:
    """When its container began to run, in Unix seconds, whole ones; None before."""
    state = container(pod).get("state", {})
    time = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return seconds(time) if time else None


def begun(job: Object) -> bool:
    """Whether any pod of a job may ever have run."""
    return bool(job.get("status", {}).get("startTime")) or names.ANNOTATION_CANCELLED in noted(job)


def running(pod: Object) -> bool:
    """Whether its container runs, as far as its kubelet has told."""
    return "running" in container(pod).get("state", {})


def report(config_map: Object | None) -> Report | None:
    """What rank 0's agent published last."""
    text = ((config_map or {}).get("data") or {}).get(names.REPORT_KEY, "")
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.MsgspecError:
        return None


def owners(thing: Object | None) -> list[str]:
    """The kinds of what an object belongs to."""
    return [owner["kind"] for owner in ((thing or {}).get("metadata") or {}).get("ownerReferences") or ()]


def seconds(time: str) -> float:
    """RFC 3339 as Unix seconds."""
    return datetime.fromisoformat(time).timestamp()


def _nodes(job: Object, pods: Iterable[Object], now: float) -> tuple[NodeFacts, ...]:
    groups: dict[int, list[Object]] = defaultdict(list)
    for pod in pods:
        if (number := index(pod)) is not None:
            groups[number].append(pod)
    pod = job["metadata"]["name"] + ("" if job["kind"] == "Job" else "-worker")
    count = max(wanted(job), *(number + 1 for number in groups), 0)
    absent = {number: NodeFacts(index=number, pod=f"{pod}-{number}") for number in range(count)}
    return tuple((absent | {number: _node(number, group, now) for number, group in groups.items()}).values())


def _node(number: int, pods: Sequence[Object], now: float) -> NodeFacts:
    """One node from all the pods that were or are it; the youngest is what it is now."""
    pod = max(pods, key=_created)
    status = container(pod)
    state = status.get("state", {})
    running, ended = state.get("running"), state.get("terminated") or {}
    return NodeFacts(
        index=number,
        pod=pod["metadata"]["name"],
        host=pod["spec"].get("nodeName", ""),
        alive=running is not None and "deletionTimestamp" not in pod["metadata"],
        attempts=len(pods) - (not has_logs(pod)),
        started=seconds(running["startedAt"]) if running else None,
        ended=seconds(ended["finishedAt"]) if ended.get("finishedAt") else None,
        exit_code=ended.get("exitCode"),
        signal=ended.get("signal"),
        termination=_termination(ended.get("message", "")),
        note=notes.of_pod(pod, state, now),
        before=_how_ended(sorted(pods, key=_created)[-2], now) if len(pods) > 1 else "",
    )


def _how_ended(pod: Object, now: float) -> str:
    """Why a node's pod was followed by another one, as far as that was told."""
    state = container(pod).get("state", {})
    told = _termination((state.get("terminated") or {}).get("message", ""))
    return notes.of_pod(pod, state, now) or (told.reason if told else "")


def _created(pod: Object) -> str:
    return str(pod["metadata"]["creationTimestamp"])


def _termination(message: str) -> Termination | None:
    try:
        return msgspec.json.decode(message, type=Termination)
    except msgspec.MsgspecError:
        return None  # not an agent's: a container that never got so far


def _failure(nodes: Sequence[NodeFacts], pods: Sequence[Object], message: str, now: float) -> Termination:
    """The first failure that an agent told; else the controller's own words, and how the last pod ended."""
    told = [place.termination for place in nodes if place.termination and place.termination.outcome == "fatal"]
    if told:
        return min(told, key=lambda one: one.time)
    last = max(pods, key=_finished, default=None)
    how = _how_ended(last, now) if last and _finished(last) else ""
    reason = f"{message}; the last, node {index(last)}: {how}" if last and how else message
    return Termination(outcome="fatal", reason=reason, fix=notes.MORE_MEMORY if notes.OUT_OF_MEMORY in how else "")


def _finished(pod: Object) -> str:
    return str((container(pod).get("state", {}).get("terminated") or {}).get("finishedAt") or "")
