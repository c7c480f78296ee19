"""Derives ``JobFacts`` from a job's Kubernetes objects, as the API server returns them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from kitctl.base import documents, names
from kitctl.kinds import all_kinds, of_object
from kitctl.kinds.job_kind import plain_env
from kitctl.state.facts import OWN_MEMORY, OWN_VOLUMES, JobFacts, NodeFacts, QueuePosition
from kitctl.targets.cluster.read import conditions, reports
from kitctl.targets.cluster.read.lifecycle import annotations_of
from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.report import PastFailure, Report, Termination

Object: TypeAlias = dict[str, Any]
Result: TypeAlias = Literal["Succeeded", "Failed", "Cancelled"]

INDEX_LABELS: Final = tuple(kind.index_label for kind in all_kinds().values())
JOB_LABELS: Final = tuple(dict.fromkeys(kind.job_label for kind in all_kinds().values()))  # kitctl's own first
CONTAINERS: Final = frozenset(kind.container for kind in all_kinds().values())
UNREPORTED_SECONDS: Final = 5.0  # that a node runs after which its ConfigMap is not just being read
_BY_TIME: Final = "DeadlineExceeded"  # of a job that its deadline has ended, whatever it recovered from before


def from_objects(
    job: Object,
    pods: Sequence[Object],
    status: Object | None,
    *,
    target: str,
    now: float,
    events: Sequence[Object] = (),
    queue: QueuePosition | None = None,
    stuck: Mapping[str, str] = MappingProxyType({}),
) -> JobFacts:
    """The facts of a job from its object, pods, status ConfigMap and, if pods are missing, its warning events.

    ``stuck``: by name, why pods do not start, or ended, whose status does not say so.
    """
    kind = of_object(job)
    nodes = _nodes(job, pods, now, stuck)
    # Pods that are deleted with their job, or by its suspension: that explains nothing.
    if "deletionTimestamp" in job["metadata"] or kind.suspended(job):
        nodes = tuple(replace(node, note="" if node.note == conditions.LEAVES else node.note) for node in nodes)
    how, ended, message = result(job)
    published = reports.report(status) or reports.own_report(job)
    unreported = "" if published else _unreported(job, nodes, status, now)
    return JobFacts(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        target=target,
        kind=kind.name,
        node_range=_node_range(job),
        desired_nodes=kind.desired_nodes(job),
        created=unix_seconds(job["metadata"]["creationTimestamp"]),
        suspended=queue.state == "Stopped" if queue else kind.suspended(job),
        result=how,
        ended=ended,
        failure=_failure(nodes, pods, message, now, stuck, published) if how == "Failed" else None,
        nodes=nodes,
        report=published,
        preparing=reports.preparing(status),
        reports=bool(documents.read_run(plain_environment(job)).report) and not unreported,
        unreported=unreported,
        grace_seconds=grace_seconds(job),
        snapshots=snapshots(job),
        outputs=outputs(job, published.run if published else ""),
        queue=queue,
        note=conditions.job_reason(job, queue, events) or conditions.untouched(job, pods, now),
        halted=conditions.halted(job, pods),
    )


def _unreported(job: Object, nodes: Sequence[NodeFacts], status: Object | None, now: float) -> str:
    """That the ConfigMap of its report is gone: it is made before the first node."""
    kind, _, name = documents.read_run(plain_environment(job)).report.partition(":")
    runs = any(node.alive and now > (node.started or now) + UNREPORTED_SECONDS for node in nodes)
    if status is None and runs and kind == "configmap":
        return f"the ConfigMap {name} is gone: nothing is known of the job's progress, which may go on"
    return ""


def _node_range(job: Object) -> str:
    """``3``, ``2:4``, or with spares ``3+1``."""
    spares = documents.read_settings(plain_environment(job)).spares
    return f"{of_object(job).nodes(job)}+{spares}" if spares else of_object(job).nodes(job)


def snapshots(job: Object) -> str:
    """Where its snapshots are; empty without."""
    volumes = {volume["name"]: volume for volume in pod_template(job)["spec"].get("volumes", [])}
    if "ephemeral" in volumes.get("snapshots", {}):
        return OWN_VOLUMES
    if "emptyDir" in volumes.get("snapshots", {}):
        return OWN_MEMORY
    return f"claim {snapshot_claim(job)}" if snapshot_claim(job) else ""


def snapshot_claim(job: Object) -> str:
    """The claim that holds its snapshots; empty without snapshots."""
    volumes = pod_template(job)["spec"].get("volumes", [])
    claims = {volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName", "") for volume in volumes}
    found: str = claims.get("snapshots", "")
    return found


def outputs(job: Object, run: str = "") -> str:
    """Where its ranks write by relative path; empty where no folder was sent, as nothing is known of it then."""
    variables = plain_environment(job)
    if documents.read_settings(variables).outputs:
        mounts = pod_template(job)["spec"]["containers"][0]["volumeMounts"]
        folder = next((one.get("subPath", "") for one in mounts if one["name"] == "snapshots"), "")
        return f"claim {snapshot_claim(job)}, {folder + '/' if folder else ''}outputs/{run or '<run>'}"
    code = documents.read_run(variables).code
    return f"{code.workdir} of each pod, gone with the pod" if code else ""


def keeps_outputs(job: Object) -> bool:
    """Whether its nodes share a folder for outputs, which outlives its pods."""
    return bool(documents.read_settings(plain_environment(job)).outputs)


def fate_of_outputs(job: Object) -> str:
    """What becomes of its outputs when it is deleted, in a line; empty where nothing is known of any."""
    where = outputs(job)
    return where and f"its outputs {'stay on' if keeps_outputs(job) else 'are deleted:'} {where}"


def result(job: Object) -> tuple[Result | None, float | None, str]:
    """The result, the time (Unix seconds) and the controller's message of a job that has ended; else None."""
    if cancelled := annotations_of(job).get(names.ANNOTATION_CANCELLED):
        return "Cancelled", unix_seconds(cancelled), ""
    results = of_object(job).terminal_conditions
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in results and condition["status"] == "True":
            return (
                results[condition["type"]],
                unix_seconds(condition["lastTransitionTime"]),
                conditions.format_condition(condition),
            )
    return None, None, ""


def grace_seconds(job: Object) -> float:
    """Seconds from SIGTERM to SIGKILL for each of its pods."""
    return float(pod_template(job)["spec"].get("terminationGracePeriodSeconds", 30))


def plain_environment(job: Object) -> dict[str, str]:
    """The literal environment variables of the job's container."""
    return plain_env(pod_template(job))


def pod_template(job: Object) -> Object:
    """The template of its pods."""
    return of_object(job).pod_template(job)


def node_index(pod: Object) -> int | None:
    """The index of the node that a pod is."""
    labels = pod["metadata"].get("labels", {})
    return next((int(labels[name]) for name in INDEX_LABELS if name in labels), None)


def container_status(pod: Object) -> Object:
    """The status of the training container; empty before it is known."""
    found = pod["status"].get("containerStatuses", [])
    return next((one for one in found if one["name"] in CONTAINERS), {})


def container_name(pod: Object) -> str:
    """The name of the training container, once its status is known."""
    return str(container_status(pod).get("name", names.CONTAINER))


def python(pod: Object) -> list[str]:
    """What starts a module of kittrain in a pod, or a pod template: of the trainer that was sent, or the image's."""
    command: list[str] = pod["spec"]["containers"][0].get("command") or []
    return command if names.TRAINER_PATH in command else [*names.PYTHON]


def script(pod: Object) -> list[str]:
    """The script, or ``-m`` and the module, that a pod or a pod template runs, with its arguments."""
    words: list[str] = pod["spec"]["containers"][0].get("args") or []
    if names.AGENT in words:  # as jobs of kitctl have it; those that people write have it in the image or the runtime
        words = words[words.index(names.AGENT) + 1 :]
        words = words[1:] if words[:1] == ["--"] else words
    return [word.replace("$$", "$") for word in words]


def has_logs(pod: Object) -> bool:
    """Whether its container has ever run."""
    status = container_status(pod)
    return bool(status.get("state", {}).keys() & {"running", "terminated"})


def loses_logs(pod: Object) -> bool:
    """Whether it has ended and is being deleted: its kubelet may already have removed its log."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not is_running(pod)


def started_at(pod: Object) -> float | None:
    """When its container started, in whole Unix seconds; None before."""
    state = container_status(pod).get("state", {})
    time = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return unix_seconds(time) if time else None


def has_started(job: Object) -> bool:
    """Whether any pod of a job may have run."""
    return bool(job.get("status", {}).get("startTime")) or names.ANNOTATION_CANCELLED in annotations_of(job)


def is_running(pod: Object) -> bool:
    """Whether its container is running, according to its kubelet."""
    return "running" in container_status(pod).get("state", {})


def owner_keys(thing: Object | None) -> list[str]:
    """The resources of an object's owners, as ``Job.batch``."""
    owners = ((thing or {}).get("metadata") or {}).get("ownerReferences") or ()
    return [f"{owner['kind']}.{owner['apiVersion'].rpartition('/')[0]}" for owner in owners]


def group_by_job(things: Sequence[Object]) -> dict[tuple[str, str], list[Object]]:
    """Objects by the namespace and the name of their job."""
    groups: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for thing in things:
        where = thing["metadata"]
        name = next((where["labels"][label] for label in JOB_LABELS if label in where["labels"]), "")
        groups[where["namespace"], name].append(thing)
    return groups


def unix_seconds(time: str) -> float:
    """An RFC 3339 time in Unix seconds."""
    return datetime.fromisoformat(time).timestamp()


def _nodes(job: Object, pods: Iterable[Object], now: float, stuck: Mapping[str, str]) -> tuple[NodeFacts, ...]:
    groups: dict[int, list[Object]] = defaultdict(list)
    for pod in pods:
        if (number := node_index(pod)) is not None:
            groups[number].append(pod)
    kind, name = of_object(job), job["metadata"]["name"]
    count = max(kind.desired_nodes(job), *(number + 1 for number in groups), 0)
    absent = {number: NodeFacts(index=number, pod=kind.pod_name(name, number)) for number in range(count)}
    return tuple((absent | {number: _node(number, group, now, stuck) for number, group in groups.items()}).values())


def _node(number: int, pods: Sequence[Object], now: float, stuck: Mapping[str, str]) -> NodeFacts:
    """One node from all its pods; the youngest one is the current one."""
    pod = max(pods, key=created)
    status = container_status(pod)
    state = status.get("state", {})
    running, ended = state.get("running"), state.get("terminated") or {}
    return NodeFacts(
        index=number,
        pod=pod["metadata"]["name"],
        host=pod["spec"].get("nodeName", ""),
        alive=running is not None and "deletionTimestamp" not in pod["metadata"],
        attempts=len(pods) - (not has_logs(pod)),
        started=unix_seconds(running["startedAt"]) if running else None,
        ended=unix_seconds(ended["finishedAt"]) if ended.get("finishedAt") else None,
        exit_code=ended.get("exitCode"),
        signal=ended.get("signal"),
        termination=_termination(ended.get("message", "")),
        note=_note(pod, state, now, stuck),
        before=_how_ended(sorted(pods, key=created)[-2], now, stuck) if len(pods) > 1 else "",
    )


def _note(pod: Object, state: Object, now: float, stuck: Mapping[str, str]) -> str:
    """Why a pod is not running: as its status says it, or what explains that, of a claim or of an image."""
    reason, more = conditions.pod_reason(pod, state, now), stuck.get(pod["metadata"]["name"], "")
    if conditions.is_unseen(pod):
        return more or reason
    if conditions.is_unbound(pod) or conditions.pull_error(pod):
        return reason and (more or reason)
    if reason and more:  # a pod without a machine, whose place another one has taken
        return f"{more}; {reason}"
    return reason or more


def _how_ended(pod: Object, now: float, stuck: Mapping[str, str]) -> str:
    """Why a node's pod ended, if known."""
    state = container_status(pod).get("state", {})
    ended = _termination((state.get("terminated") or {}).get("message", ""))
    if told := conditions.pod_reason(pod, state, now):
        return told
    if ended and ended.outcome != "drained":  # else somebody has stopped it
        return ended.reason
    return stuck.get(pod["metadata"]["name"], "") or (ended.reason if ended else "")


def created(pod: Object) -> str:
    """When a pod was created, as the API server writes it."""
    return str(pod["metadata"]["creationTimestamp"])


def _termination(message: str) -> Termination | None:
    try:
        found: Termination = typed.load(Termination, message.encode(errors="replace"))
    except MalformedError:
        return None  # not from an agent: the container failed before it started one
    return found


def _failure(
    nodes: Sequence[NodeFacts],
    pods: Sequence[Object],
    message: str,
    now: float,
    stuck: Mapping[str, str],
    report: Report | None,
) -> Termination:
    """The first failure that an agent reported; else the controller's message, and how the last pod ended.

    Once the pods are gone, the cause is that of the last failure which the ranks have not recovered from.
    """
    fatal = [node.termination for node in nodes if node.termination and node.termination.outcome == "fatal"]
    if fatal:
        return min(fatal, key=lambda one: one.time)
    last = max(pods, key=_finished, default=None)
    how = _how_ended(last, now, stuck) if last and _finished(last) else ""
    if not how and report and not message.startswith(_BY_TIME) and (past := _unrecovered(report)):
        return Termination(outcome="fatal", reason=message, rank=past.rank, node=past.node, error=past.cause)
    reason = f"{message}; the last, node {node_index(last)}: {how}" if last and how else message
    return Termination(
        outcome="fatal", reason=reason, fix=conditions.MORE_MEMORY_FIX if conditions.OUT_OF_MEMORY in how else ""
    )


def _unrecovered(report: Report) -> PastFailure | None:
    """The last failure, if no step was taken since."""
    past = report.failures[-1] if report.failures else None
    return past if past and past.time > (report.progress.resumed_at or 0.0) else None


def _finished(pod: Object) -> str:
    return str((container_status(pod).get("state", {}).get("terminated") or {}).get("finishedAt") or "")
