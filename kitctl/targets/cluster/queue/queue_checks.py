"""Checks of a job's queue before anything is created: whether it exists, is active, and could ever admit the job.

Users of Kueue may usually read LocalQueues, and not ClusterQueues: what this user may not read is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kitctl.base.errors import Forbidden, NotFound, UnsupportedError, UsageError
from kitctl.kinds import of_spec
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.queue import quota


def check(api: Api, spec: JobSpec, manifest: Object) -> Iterator[str]:
    """Refuse a job that its queue could never admit; yields what its user should know, in a sentence each.

    Args:
        api: the server.
        spec: the job; it is in a queue.
        manifest: its object.

    Raises:
        UsageError: Kueue is not installed, or in an unknown version; there is no such queue or priority class; or the
            queue's quota is too small.
    """
    kind = of_spec(spec.kind)
    with suppress(Forbidden):
        _check_priority(api, spec)
    with suppress(Forbidden):
        queue = local_queue(api, spec)
        if stopped := inactive(queue):
            yield f"{stopped}: the job waits"
        if cluster_queue := api.find("ClusterQueue", None, queue["spec"]["clusterQueue"]):
            _check_quota(api, spec, manifest, cluster_queue)
    if spec.elastic and not kind.queue_admits_fewer:
        yield f"Kueue starts a {kind.title} with all of its {spec.all_nodes} nodes or not at all"


def local_queue(api: Api, spec: JobSpec) -> Object:
    """The job's queue.

    Raises:
        UsageError: there is none.
        Forbidden: this user may not read it.
    """
    name = spec.scheduling.queue
    try:
        return api.get("LocalQueue", spec.namespace, name)
    except UnsupportedError as error:
        raise UsageError("scheduling.queue: Kueue is not installed", fix="omit --queue") from error
    except NotFound as error:
        there = sorted(one["metadata"]["name"] for one in api.select("LocalQueue", spec.namespace))
        listed = f"there {'are' if len(there) > 1 else 'is'} {', '.join(there)}" if there else "there are none"
        what = f"no LocalQueue {name!r} in namespace {spec.namespace!r}; {listed}"
        raise UsageError(f"scheduling.queue: {what}", fix="name another one, or omit --queue") from error


def inactive(queue: Object) -> str:
    """Why a LocalQueue admits nothing for now; empty: it does."""
    active = {one["type"]: one for one in queue.get("status", {}).get("conditions") or ()}.get("Active", {})
    stopped = active.get("status") == "False"
    return f"queue {queue['metadata']['name']!r} is inactive: {active.get('message', '')}" if stopped else ""


def _check_priority(api: Api, spec: JobSpec) -> None:
    name = spec.scheduling.workload_priority_class
    if name and api.find("WorkloadPriorityClass", None, name) is None:
        there = sorted(one["metadata"]["name"] for one in api.select("WorkloadPriorityClass"))
        what = f"no WorkloadPriorityClass {name!r}; there are {', '.join(there) or 'none'}"
        raise UsageError(f"scheduling.workloadPriorityClass: {what}", fix="name another one, or omit it")


def _check_quota(api: Api, spec: JobSpec, manifest: Object, queue: Object) -> None:
    kind = of_spec(spec.kind)
    nodes = spec.min_nodes if kind.queue_admits_fewer else spec.all_nodes
    pod = quota.pod_requests(kind.pod_template(manifest))
    if found := list(quota.obstacles(queue, _cohort(api, queue), pod, nodes)):
        name = queue["metadata"]["name"]
        what = f"ClusterQueue {name!r} can never admit {nodes} such nodes: {'; '.join(found)}"
        fix = "request less, or use another queue; --no-checks if its quota is about to change"
        raise UsageError(f"scheduling.queue: {what}", fix=fix)


def _cohort(api: Api, queue: Object) -> list[Object] | None:
    """The other ClusterQueues of its cohort; None: not known, since the cohort is an object that may have parents."""
    name = quota.cohort_of(queue)
    if not name:
        return []
    with suppress(Forbidden):
        if api.find("Cohort", None, name):
            return None
        own = queue["metadata"]["name"]
        every = api.select("ClusterQueue")
        return [one for one in every if quota.cohort_of(one) == name and one["metadata"]["name"] != own]
    return None
