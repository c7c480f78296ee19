"""Why a pod or a job is not running, in a sentence: from conditions, events and container states. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kitctl.base.quantity import amount
from kitctl.kinds import all_kinds, of_object
from kitctl.state.facts import QueuePosition
from kitctl.targets.cluster.read import lifecycle

Object = dict[str, Any]
USUAL_REASONS: Final = frozenset({"Completed", "Error", "ContainerCreating", "PodInitializing"})
# This taint marks the node's pods as failed. Force deletion does not: the Job controller still waits for their end.
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
SLACK_SECONDS: Final = 15.0  # after the grace period; then a pod that still exists is stuck
UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
PROBING_SECONDS: Final = 30.0  # in which a sidecar mostly has started
SETTLED_SECONDS: Final = 60.0  # that a sidecar runs after which its former ends are told no more
UNSEEN_SECONDS: Final = 30.0  # after which a scheduler has mostly said where a pod may run, or why nowhere
ENDED_OFTEN: Final = 3  # ends of a sidecar after which it is told although it does not fail
STAGING_SECONDS: Final = 60.0  # that an init container runs before it is told that it does
START_CPU_SECONDS: Final = 10.0  # of a processor, that a node's start takes for the most part: torch's import alone 3
FEW_CPUS: Final = 0.15  # with which that takes more than a minute
THROTTLED_SECONDS: Final = 30.0  # since its start, before they are told
BINDING_SECONDS: Final = 10.0  # that a claim may take to get its volume

UNTOUCHED_SECONDS: Final = 30.0  # after which a controller that runs has written a job's status, also a suspended one's
ENDED: Final = frozenset({"Succeeded", "Failed"})  # phases of a pod

LEAVES: Final = "is being deleted"
LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"  # annotation of pods: which of their resources it has set
OUT_OF_MEMORY: Final = "OOMKilled"
KILLED: Final = frozenset({137, 143})  # exit codes of a container that was ended by SIGKILL or SIGTERM
UNKNOWN_END: Final = "ContainerStatusUnknown"  # its kubelet has not seen it end: what the pod says tells more
MORE_MEMORY_FIX: Final = "raise resources.limits.memory, or use less: fewer data loader workers, smaller batches"

NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})  # containerd's, and docker's
NO_PROGRAM: Final = re.compile(r'exec: "(?:[^"]*/)?([^"/]+)":[^:]* (?:not found|no such file)')
NO_MODULE: Final = re.compile(r"No module named '?(kittrain|kitjob)")
NO_BUILD: Final = "no match for platform"  # containerd's words, while it pulls
OTHER_PROCESSOR_FIX: Final = "choose one for both, or set nodeSelector"

CONFIG_ERROR: Final = "CreateContainerConfigError"
NO_SOURCE: Final = re.compile(r"not found|couldn't find key")  # else it is of users, or of a volume

PULL_ERRORS: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
# Waiting reasons that do not resolve by themselves, and what to do.
FIXES: Final = {
    "ErrImagePull": "check the image's name, and the cluster's right to pull it",
    "ImagePullBackOff": "check the image's name, and the cluster's right to pull it",
    "InvalidImageName": "check the image's name",
    CONFIG_ERROR: "create the Secret or ConfigMap that it names",
}


def pod_reason(pod: Object, state: Object, now: float) -> str:
    """Why a pod is not running; empty if it is. ``state`` is that of the container that trains."""
    return next(_pod_reasons(pod, state, now), "")


def job_reason(job: Object, queue: QueuePosition | None, events: Sequence[Object]) -> str:
    """Why a job has no pods: its deletion, an interrupted submit, a queue, or its latest warning event."""
    if held := _held(job):
        return held
    if lifecycle.is_pending(job):
        return "submit was interrupted: run it again, or kitctl delete"
    if queue and queue.state in {"Waiting", "Stopped"}:
        return _queue_reason(queue)
    latest = max(events, key=time_of, default=None)
    return format_condition(latest) if latest else ""


def _held(job: Object) -> str:
    """That a job is being deleted, and who keeps it; empty: it is not."""
    if holder := lifecycle.kept_by(job):
        return f"the job is being deleted, and kept by its finalizer {holder}"
    return "the job is being deleted" if job["metadata"].get("deletionTimestamp") else ""


def halted(job: Object, pods: Sequence[Object]) -> str:
    """Why nothing starts a job's nodes again, or not all of them; empty: nothing is known to keep them."""
    if job["metadata"].get("deletionTimestamp"):
        ended = (pod for pod in pods if pod["status"].get("phase") in ENDED)
        held = next(((pod["metadata"]["name"], holder) for pod in ended if (holder := lifecycle.kept_by(pod))), None)
        return (
            f"the job is being deleted, and waits for pod {held[0]}, which its finalizer {held[1]} keeps"
            if held
            else ""
        )
    return _too_few(job)


def _too_few(job: Object) -> str:
    """A number of nodes that somebody has set below the least one with which the job trains."""
    kind = of_object(job)
    number, low = kind.desired_nodes(job), kind.nodes(job).partition(":")[0]
    if not low.isdecimal() or number >= (least := int(low)) or kind.suspended(job) or kind.fixed_size:
        return ""
    patch = json.dumps(kind.scale(least))
    return f"the {kind.resource}'s {kind.size_field} is {number}, of {least} nodes: {kind.key} {patch}"


def untouched(job: Object, pods: Sequence[Object], now: float) -> str:
    """That no controller has written anything to a job that is to run; empty: one has, or may still do so."""
    kind, seconds = of_object(job), _since(job["metadata"]["creationTimestamp"], now)
    if job.get("status") or pods or kind.suspended(job) or seconds < UNTOUCHED_SECONDS:
        return ""
    who = kind.operator or "Kubernetes' Job controller"
    return f"{who} has not touched the {kind.resource} for {seconds:.0f} s: it has no status and no pods"


def format_condition(condition: Mapping[str, Any]) -> str:
    """``Reason: message`` of a condition, an event or a container's state."""
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))


def _waiting_fix(reason: str, message: str) -> str:
    """What to do about a container that waits; empty if that is not known."""
    if NO_BUILD in message:
        return OTHER_PROCESSOR_FIX
    if reason == CONFIG_ERROR and not NO_SOURCE.search(message):
        return ""
    return FIXES.get(reason, "")


def _pod_reasons(pod: Object, state: Object, now: float) -> Iterator[str]:
    """The most specific one first."""
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions") or []}
    yield from _termination(pod, state, now, conditions.get("DisruptionTarget", {}))
    yield from _unseen(pod, now)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and not _binds(scheduled, now):
        yield format_condition(scheduled)
    yield from _outlives(pod) if "terminated" in state else _before_the_ranks(pod, now)
    waiting = state.get("waiting") or {}
    if waiting and waiting.get("reason") not in USUAL_REASONS:
        fix = _waiting_fix(waiting.get("reason", ""), waiting.get("message", ""))
        yield format_condition(waiting) + (f" ({fix})" if fix else "")
    ended = state.get("terminated") or {}
    if ended.get("reason") in NOT_STARTED and ended.get("message"):
        yield _not_started(ended["message"])
    if ended.get("reason", "Error") not in {*USUAL_REASONS, UNKNOWN_END}:
        yield f"{ended['reason']} (exit code {ended['exitCode']}{_limit(pod, ended['reason'])})"
    if disruption := conditions.get("DisruptionTarget"):
        yield format_condition(disruption)
    if pod["status"].get("reason"):  # Evicted, NodeLost: the kubelet's, or the node controller's
        yield format_condition(pod["status"])
    if ended.get("reason") == UNKNOWN_END:
        yield f"{UNKNOWN_END} (exit code {ended['exitCode']})"
    yield from _throttled(pod, state, now)
    if is_out_of_reach(pod):
        yield f"machine {pod['spec'].get('nodeName', '')} does not answer: its kubelet has stopped, or it is lost"


def _throttled(pod: Object, state: Object, now: float) -> Iterator[str]:
    """A limit of processors that cannot have let a node start since its container did."""
    limit = next((one["cpu"] for one in _trainer_limits(pod) if "cpu" in one), "")
    if (running := state.get("running")) and limit and (cores := amount(limit)) < FEW_CPUS:
        seconds = _since(running["startedAt"], now)
        if seconds > THROTTLED_SECONDS and cores * seconds < START_CPU_SECONDS:
            by = "; the namespace's LimitRange sets it" * ("cpu limit" in _set_by_range(pod))
            yield f"the CPU limit {limit} has left it {cores * seconds:.1f} s of a processor in {seconds:.0f} s{by}"


def _set_by_range(pod: Object) -> str:
    """What of its resources the namespace's LimitRange has set, in its words."""
    given: str = pod["metadata"].get("annotations", {}).get(LIMIT_RANGER, "")
    return given


def _trainer_limits(pod: Object) -> list[Mapping[str, str]]:
    """The limits of the container that trains."""
    trainers = {kind.container for kind in all_kinds().values()}
    containers = (pod.get("spec") or {}).get("containers") or []
    return [one.get("resources", {}).get("limits") or {} for one in containers if one["name"] in trainers]


def is_unseen(pod: Object) -> bool:
    """Whether no scheduler has said anything of a pod that has no machine."""
    told = {one["type"] for one in pod["status"].get("conditions") or []}
    return (
        pod["status"].get("phase") == "Pending"
        and "PodScheduled" not in told
        and not (pod.get("spec") or {}).get("nodeName")
    )


def _unseen(pod: Object, now: float) -> Iterator[str]:
    """A scheduler that does not run, or has another name."""
    if is_unseen(pod) and (seconds := _since(pod["metadata"]["creationTimestamp"], now)) > UNSEEN_SECONDS:
        name = (pod.get("spec") or {}).get("schedulerName", "default-scheduler")
        yield f"the scheduler {name} has said nothing of the pod for {seconds:.0f} s"


def is_out_of_reach(pod: Object) -> bool:
    """Whether its machine does not answer: then Kubernetes calls a pod unready whose containers were ready.

    It does so 40 seconds later, and replaces the pod after five minutes.
    """
    ready = {one["type"]: one["status"] for one in pod["status"].get("conditions") or []}.get("Ready")
    containers = [
        *(pod["status"].get("containerStatuses") or [{}]),
        *(one for one in pod["status"].get("initContainerStatuses") or [] if one["name"] in _sidecars(pod)),
    ]
    gated = (pod.get("spec") or {}).get("readinessGates")
    return ready == "False" and not gated and all(one.get("ready") for one in containers)


def pull_error(pod: Object) -> str:
    """What is said last of the image of one of its containers, if it cannot be pulled; empty if it can."""
    beside = [(_beside(pod, one["name"]), one) for one in pod["status"].get("initContainerStatuses") or []]
    each = [*beside, *(("", one) for one in pod["status"].get("containerStatuses") or [])]
    states = ((whose, one.get("state", {}).get("waiting") or {}) for whose, one in each)
    return next((whose + format_condition(one) for whose, one in states if one.get("reason") in PULL_ERRORS), "")


def _beside(pod: Object, name: str) -> str:
    """``sidecar proxy: `` or ``init container fetch: ``, before what is said of a container beside the ranks'."""
    return f"{'sidecar' if name in _sidecars(pod) else 'init container'} {name}: "


def is_unbound(pod: Object) -> bool:
    """Whether a pod waits for a claim that has no volume."""
    told = (one.get("message", "") for one in pod["status"].get("conditions") or [] if one["type"] == "PodScheduled")
    return any(UNBOUND in one for one in told)


def _binds(scheduled: Mapping[str, Any], now: float) -> bool:
    """Whether a pod waits for a volume that may be made in this moment."""
    since = scheduled.get("lastTransitionTime")
    young = bool(since) and now < datetime.fromisoformat(str(since)).timestamp() + BINDING_SECONDS
    return young and UNBOUND in scheduled.get("message", "")


def _before_the_ranks(pod: Object, now: float) -> Iterator[str]:
    """An init container that has failed, or cannot start: the container that trains only waits for it."""
    beside = _sidecars(pod)
    for one in pod["status"].get("initContainerStatuses") or []:
        state = one.get("state") or {}
        waiting = state.get("waiting") or {}
        ended = state.get("terminated") or (one.get("lastState") or {}).get("terminated") or {}
        if one["name"] in beside and ended:
            yield from _ended_beside(pod, one, ended, now)
        elif ended.get("exitCode"):
            yield f"init container {one['name']} of {pod['metadata']['name']} failed{_how(ended)}"
        elif one["name"] not in beside and (began := state.get("running")):
            if (seconds := _since(began["startedAt"], now)) > STAGING_SECONDS:
                yield f"init container {one['name']} has run for {seconds:.0f} s"
        elif waiting and waiting.get("reason") not in USUAL_REASONS:
            yield _beside(pod, one["name"]) + format_condition(waiting)
        elif one["name"] in beside and one.get("started") is False and (began := state.get("running")):
            seconds = _since(began["startedAt"], now)
            if seconds > PROBING_SECONDS:
                yield f"sidecar {one['name']} runs for {seconds:.0f} s, and its startup probe has not succeeded"


def _ended_beside(pod: Object, one: Object, ended: Mapping[str, Any], now: float) -> Iterator[str]:
    """A sidecar that has failed or ends again and again, unless it has run for a while since."""
    running = (one.get("state") or {}).get("running")
    settled = running and one.get("started") and _since(running["startedAt"], now) > SETTLED_SECONDS
    times = one.get("restartCount", 0) + (not running)
    if (ended.get("exitCode") or times >= ENDED_OFTEN) and not settled:
        often = f"{times} time{'s'[: times != 1]}"
        probed = ", and its startup probe has not succeeded" * _killed_unprobed(pod, one, ended)
        yield f"sidecar {one['name']} of {pod['metadata']['name']} has ended {often}{_how(ended)}{probed}"


def _killed_unprobed(pod: Object, one: Object, ended: Mapping[str, Any]) -> bool:
    """Whether a sidecar that a signal has ended has a startup probe that has not succeeded since.

    Its kubelet kills one whose probe fails too often; the container's state does not say so.
    """
    probed = {each["name"] for each in pod["spec"]["initContainers"] if "startupProbe" in each}
    killed = ended.get("exitCode") in KILLED and ended.get("reason") != OUT_OF_MEMORY
    return one["name"] in probed and not one.get("started") and killed


def _outlives(pod: Object) -> Iterator[str]:
    """What still runs in a pod whose ranks have ended."""
    for one in pod["status"].get("containerStatuses") or []:
        if "running" in (one.get("state") or {}):
            yield f"the ranks have ended, and container {one['name']} of {pod['metadata']['name']} has not"
    for one in pod["status"].get("initContainerStatuses") or []:
        if one["name"] in _sidecars(pod) and "running" in (one.get("state") or {}):
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
            yield (
                f"the ranks have ended, and sidecar {one['name']} of {pod['metadata']['name']} has not: "
                f"it is killed {grace} s after them"
            )


def _sidecars(pod: Object) -> frozenset[str]:
    """Init containers that run next to the ranks."""
    known = (pod.get("spec") or {}).get("initContainers") or []
    return frozenset(one["name"] for one in known if one.get("restartPolicy") == "Always")


def _how(ended: Mapping[str, Any]) -> str:
    """How a container has ended, with its last words."""
    said = ended.get("message", "").strip().rpartition("\n")[2]
    memory = f", {OUT_OF_MEMORY}" * (ended.get("reason") == OUT_OF_MEMORY)
    return f" (exit code {ended['exitCode']}{memory})" + (f": {said}" if said else "")


def _since(moment: str, now: float) -> float:
    return now - datetime.fromisoformat(moment).timestamp()


def before_the_agent(line: str) -> str:
    """Why a process never became an agent, from the last line of its log; empty if that does not tell."""
    if "exec format error" in line:
        return f"the image is for processors of another kind than the node's ({OTHER_PROCESSOR_FIX})"
    if missing := NO_MODULE.search(line):
        return f"the image has no {missing[1]} (leave out --trainer image, or choose an image that has it)"
    return ""


def _not_started(message: str) -> str:
    """Why a container's process could not be started, from the words of runc."""
    if missing := NO_PROGRAM.search(message):
        return f"the image has no {missing[1]} (choose one with Python 3.11 and torch 2.6, or later)"
    if known := before_the_agent(message):
        return known
    return f"its container could not be started: {message.rpartition('unable to start container process: ')[2]}"


def _termination(pod: Object, state: Object, now: float, disruption: Mapping[str, Any]) -> Iterator[str]:
    """For a pod that is being deleted; it is stuck if its end is not confirmed within its grace period."""
    if (since := pod["metadata"].get("deletionTimestamp")) is None:
        return
    if now < datetime.fromisoformat(since).timestamp() + SLACK_SECONDS:  # when its grace period is over
        yield LEAVES + (f": {format_condition(disruption)}" if disruption else "")
        return
    if "terminated" in state and (holder := lifecycle.kept_by(pod)):
        yield f"has ended, and is kept by its finalizer {holder}"
        return
    if "terminated" in state:  # its kubelet has reported it; the controller's finalizer holds the pod
        yield "has ended, and is replaced once Kubernetes' Job controller notices: up to ten minutes"
        return
    node = pod["spec"].get("nodeName", "its node")
    yield (
        f"termination not confirmed: node {node} is unreachable; replaced once {node} is back, or soon after "
        f"kubectl taint node {node} {OUT_OF_SERVICE} (only while {node} is switched off)"
    )


def _limit(pod: Object, reason: str) -> str:
    """The memory limit that a container exceeded."""
    limits = _trainer_limits(pod) if reason == OUT_OF_MEMORY else []
    found = next((f", the limit is {limit['memory']}" for limit in limits if "memory" in limit), "")
    by_range = found and "memory limit" in _set_by_range(pod)
    return f"{found}, which the namespace's LimitRange sets" if by_range else found


def _queue_reason(queue: QueuePosition) -> str:
    """``waits in queue research, position 2: couldn't assign flavors ...``."""
    if queue.state == "Stopped":
        return queue.reason
    place = f", position {queue.position}" if queue.position else ""
    return f"waits in queue {queue.name}{place}" + (f": {queue.reason}" if queue.reason else "")


def time_of(event: Object) -> str:
    """When an event happened last, as the API server writes it."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
