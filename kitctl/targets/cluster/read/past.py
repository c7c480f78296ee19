"""A job's past from its Kubernetes objects, as far as these are still there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from kitctl.kinds import of_object
from kitctl.state.history import Attempt, JobHistory, QueueWait
from kitctl.targets.cluster.read import job_facts
from kitctl.targets.cluster.read.job_facts import unix_seconds

Object: TypeAlias = dict[str, Any]


def history(
    job: Object, pods: Sequence[Object], lines: bytes, *, run: str, waits: tuple[QueueWait, ...], now: float
) -> JobHistory:
    """What a job's objects say of its past.

    Args:
        job: its object.
        pods: those that still exist.
        lines: what its agents have written.
        run: id of its run; empty: unknown.
        waits: in its queue.
        now: in Unix seconds.
    """
    kind = of_object(job)
    result, ended, _ = job_facts.result(job)
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
        attempts=tuple(sorted(filter(None, map(_attempt, pods)), key=lambda one: (one.node, one.created or 0.0))),
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


def _condition(found: Object, kind: str) -> float | None:
    """When a condition became true; None if it is not."""
    conditions = found.get("status", {}).get("conditions") or []
    times = [one["lastTransitionTime"] for one in conditions if one["type"] == kind and one["status"] == "True"]
    return unix_seconds(times[0]) if times else None
