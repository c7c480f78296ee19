"""Stopping, starting and scaling a job: by its own fields, or by its Workload where a queue decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kitctl.base import documents, names
from kitctl.base.errors import ConflictError, Forbidden, TargetError
from kitctl.kinds import of_object
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.queue import kueue, queues
from kitctl.targets.cluster.read import job_facts, lifecycle
from kitctl.targets.cluster.read.existing import POLL_SECONDS

STOP_SLACK_SECONDS: Final = 30.0  # beyond the grace period


def check_open(job: Object) -> None:
    """Refuse to change a job that has ended, or that is being deleted.

    Raises:
        ConflictError: it has, or is.
    """
    check_kept(job)
    end, _, _ = job_facts.result(job)
    if end:
        fix = "kitctl restart starts a cancelled job again" if end == "Cancelled" else "submit it again"
        raise ConflictError(f"{job['metadata']['name']!r} has already ended ({end.lower()})", fix=fix)


def check_kept(job: Object) -> None:
    """Refuse to change a job that is being deleted: nothing starts its nodes again.

    Raises:
        ConflictError: it is.
    """
    name = job["metadata"]["name"]
    if "deletionTimestamp" in job["metadata"]:
        fix = f"kitctl why {name} shows what it waits for; submit it again once it is gone"
        raise ConflictError(f"{name!r} is being deleted", fix=fix)


def stop(api: Api, job: Object, marks: Object | None = None) -> None:
    """Have a job's pods deleted; each takes a snapshot before. In a queue, its quota is freed as well.

    Args:
        api: the server.
        job: its object.
        marks: a further patch of the job.

    Raises:
        Forbidden: it is in a queue, and this user may not change Workloads.
    """
    if queues.decides(api, job):
        queues.stop(api, job)
        if marks:
            api.patch(job, marks)
    else:
        api.patch(job, (marks or {}) | of_object(job).suspend(suspended=True))


def start(api: Api, job: Object, marks: Object) -> None:
    """Start a stopped job, or return it to its queue. Arguments and errors are those of ``stop``."""
    if queues.decides(api, job):
        api.patch(job, marks)
        queues.start(api, job)
    else:
        api.patch(job, marks | of_object(job).suspend(suspended=False))


def restore_status(api: Api, job: Object) -> str:
    """Create the ConfigMap that a job's agents report to if it is known to be gone; returns its name then."""
    where = job["metadata"]
    kind, _, name = documents.read_run(job_facts.plain_environment(job)).report.partition(":")
    try:
        if kind != "configmap" or api.find("ConfigMap", where["namespace"], name):
            return ""
    except Forbidden:
        return ""
    labels = where.get("labels", {}) | {names.LABEL_COMPONENT: "status"}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": where["namespace"], "labels": labels},
    }
    api.create(lifecycle.with_owner_reference(config_map, job))
    return name


def await_stop(job: Object, pods: Callable[[], list[Object]]) -> None:
    """Wait until none of a job's pods runs.

    Raises:
        TargetError: one still runs some time after its grace period.
    """
    name = job["metadata"]["name"]
    seconds = job_facts.grace_seconds(job) + STOP_SLACK_SECONDS
    deadline = time.monotonic() + seconds
    while any(map(job_facts.is_running, pods())):
        if time.monotonic() > deadline:
            fix = f"kitctl status {name} shows which node does not answer"
            raise TargetError(f"{name!r} did not stop within {seconds:.0f} s", fix=fix)
        time.sleep(POLL_SECONDS)


def scale(api: Api, job: Object, nodes: int) -> None:
    """Set the number of nodes of an elastic job.

    Raises:
        ConflictError: it is in a queue, which would have to stop it first.
    """
    kind = of_object(job)
    if not queues.decides(api, job):
        api.patch(job, kind.scale(nodes))
        return
    if not kind.suspended(job):
        _check_scalable(job)
    if names.ANNOTATION_MIN_PARALLELISM in job["metadata"].get("annotations", {}):
        api.patch(job, kueue.ALL_OR_NOTHING)  # Kueue lets no other client change a number that it chose itself
    api.patch(job, kind.scale(nodes))


def _check_scalable(job: Object) -> None:
    if kueue.is_scalable(job):
        return
    name, queue = job["metadata"]["name"], kueue.queue_of(job)
    what = f"{name!r} was admitted by queue {queue!r} with its present nodes, and Kueue would stop it for more or fewer"
    raise ConflictError(what, fix=f"kitctl suspend {name}, then scale and resume it: it waits in the queue again")
