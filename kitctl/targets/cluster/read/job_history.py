"""A job's past from its Kubernetes objects, as far as these are still there. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from kitctl.kinds import of_object
from kitctl.state.history import Attempt, JobHistory, QueueWait
from kitctl.targets.cluster.read import job_facts
from kitctl.targets.cluster.read.events import STARTS
from kitctl.targets.cluster.read.job_facts import unix_seconds

Object: TypeAlias = dict[str, Any]


def history(
    job: Object,
    pods: Sequence[Object],
    lines: bytes,
    *,
    starts: Sequence[Object],
    run: str,
    waits: tuple[QueueWait, ...],
    now: float,
) -> JobHistory:
    """What a job's objects say of its past.

    Args:
        job: its object.
        pods: those that still exist.
        lines: what its agents have written.
        starts: events of pods that were scheduled or started, also of other jobs.
        run: id of its run; empty: unknown.
        waits: in its queue.
        now: in Unix seconds.
    """
    kind = of_object(job)
    result, ended, _ = job_facts.result(job)
    attempts = [*filter(None, map(_attempt, pods)), *_gone(job, pods, starts)]
    return JobHistory(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        nodes=kind.desired_nodes(job),
        submitted=unix_seconds(job["metadata"]["creationTimestamp"]),
        now=now,
        ended=ended,
        result=result or "",
        run=run,
        waits=waits,
        attempts=tuple(sorted(attempts, key=lambda one: (one.node, one.created or 0.0))),
        lines=lines,
    )


def _attempt(pod: Object) -> Attempt | None:
    node = job_facts.node_index(pod)
    if node is None:
        return None
    state = job_facts.container_status(pod).get("state", {})
    ended = state.get("terminated") or {}
    started = (state.get("running") or ended).get("startedAt")
    return Attempt(
        node=node,
        created=unix_seconds(pod["metadata"]["creationTimestamp"]),
        scheduled=_condition(pod, "PodScheduled"),
        started=unix_seconds(started) if started else None,
        ended=unix_seconds(ended["finishedAt"]) if ended.get("finishedAt") else None,
        done=ended.get("exitCode") == 0,
    )


def _gone(job: Object, pods: Sequence[Object], starts: Sequence[Object]) -> Iterator[Attempt]:
    """The starts of pods that are gone, as after a preemption: their events are there for an hour."""
    where, here = job["metadata"], {pod["metadata"]["uid"] for pod in pods}
    named = re.compile(rf"{re.escape(of_object(job).pod_owner(where['name']))}-(\d+)-\w+$")
    times: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    for event in starts:
        about, time = event["involvedObject"], _first(event)
        mine = about["uid"] not in here and time >= unix_seconds(where["creationTimestamp"])
        if (found := named.match(about["name"])) and mine:
            times[int(found[1]), about["uid"]][event["reason"]] = time
    for (node, _), known in times.items():
        if len(known) == len(STARTS):
            yield Attempt(node=node, created=known["Scheduled"], scheduled=known["Scheduled"], started=known["Started"])


def _first(event: Object) -> float:
    return unix_seconds(event.get("firstTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def _condition(found: Object, kind: str) -> float | None:
    """When a condition became true; None if it is not."""
    conditions = found.get("status", {}).get("conditions") or []
    times = [one["lastTransitionTime"] for one in conditions if one["type"] == kind and one["status"] == "True"]
    return unix_seconds(times[0]) if times else None
