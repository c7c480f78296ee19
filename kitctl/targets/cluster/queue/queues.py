"""Requests about queues: the Workload of a job, and its place among those that wait.

Kueue's own role for users may read Workloads but not change them: what needs more says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kitctl.base import names
from kitctl.base.errors import Forbidden, KitError, TargetError
from kitctl.kinds import of_object
from kitctl.state.facts import NO_WORKLOAD_FIX, QueuePosition
from kitctl.state.history import QueueWait
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object, key_of
from kitctl.targets.cluster.queue import admissions, kueue
from kitctl.targets.cluster.read import job_facts, lifecycle
from kitctl.targets.cluster.read.existing import POLL_SECONDS, wait_deleted

WORKLOAD_SECONDS: Final = 10.0  # for Kueue to make one
UNMADE_SECONDS: Final = 30.0  # after which it is told that there is none
MADE_SECONDS: Final = 3.0  # in which one is made of a job that has just been put into its queue
RIGHT: Final = "ask for the right to change workloads (ClusterRole kueue-workload-editor-role), or use kitctl delete"


def facts(api: Api, job: Object) -> QueuePosition | None:
    """A job's position in its queue; None: it is in none."""
    if not kueue.queue_of(job):
        return None
    workload = _find(api, job)
    found = kueue.facts(job, workload, unmade=0.0 if workload else _unmade(api, job))
    if workload is None or found is None or found.state != "Waiting":
        return found
    with suppress(KitError):  # Kueue is away, or an older one, or this user may not see others' jobs
        pending = api.pending_workloads(job["metadata"]["namespace"], found.name)
        return kueue.facts(job, workload, kueue.position_of(workload, pending))
    return found


def _unmade(api: Api, job: Object) -> float:
    """For how many seconds Kueue has made no Workload of a job; 0: it may be about to, or that is not known.

    It looks twice: the job may have been put into its queue, or its Workload be replaced, in this moment.
    """
    waited = time.time() - job_facts.unix_seconds(job["metadata"]["creationTimestamp"])
    if lifecycle.is_pending(job) or not of_object(job).suspended(job) or waited < UNMADE_SECONDS:
        return 0.0
    with suppress(KitError):
        for pause in (0.0, MADE_SECONDS):
            time.sleep(pause)
            if kueue.workload_of(job, _select(job, api.select_once)):
                return 0.0
        return waited
    return 0.0


def decides(api: Api, job: Object) -> bool:
    """Whether Kueue decides when a job runs: it is in a queue, and Kueue is installed.

    Raises:
        UsageError: Kueue has a version that kitctl does not know.
    """
    return bool(kueue.queue_of(job)) and api.serves("Workload")


def all_workloads(api: Api, namespace: str | None) -> list[Object]:
    """All Workloads of a namespace, or of all, as far as this user may read them, and while Kueue serves them."""
    with suppress(KitError):
        return api.select_once("Workload", namespace)
    return []


def waits(api: Api, job: Object) -> tuple[QueueWait, ...]:
    """When a job waited in its queue, as far as this user may read; empty: it is in none."""
    if not kueue.queue_of(job):
        return ()
    workloads: list[Object] = []
    events: list[Object] = []
    with suppress(KitError):
        workloads += _select(job, api.select_once)
        for one in workloads:
            about = f"involvedObject.kind=Workload,involvedObject.name={one['metadata']['name']}"
            events += api.select("Event", job["metadata"]["namespace"], fieldSelector=about)
    return admissions.waits(job, workloads, events)


def workload(api: Api, job: Object) -> Object:
    """The Workload of a queued job, with its kind; Kueue makes it a moment after the job.

    Raises:
        TargetError: there is none.
        Forbidden: this user may not read it.
    """
    deadline = time.monotonic() + WORKLOAD_SECONDS
    while True:
        where = job["metadata"]
        found = kueue.workload_of(job, _select(job, api.select))
        if found is not None:
            return found | {"kind": "Workload"}
        if time.monotonic() > deadline:
            what = f"Kueue has made no Workload for {where['name']!r}"
            raise TargetError(what, fix=NO_WORKLOAD_FIX.replace("NAMESPACE", where["namespace"]))
        time.sleep(POLL_SECONDS)


def stop(api: Api, job: Object) -> None:
    """Have Kueue suspend a queued job, and give its quota to others.

    Raises:
        Forbidden: this user may not change Workloads.
    """
    _patch(api, job, kueue.STOP)


def start(api: Api, job: Object) -> None:
    """Return a stopped job to its queue. Raises as ``stop`` does."""
    if kueue.forget_workload(_now(api, job)):
        _replace_workload(api, job)
    else:
        _patch(api, job, kueue.START)


def _replace_workload(api: Api, job: Object) -> None:
    """Have Kueue create a new Workload: a stopped one would restore the annotation that prevents the start."""
    found = workload(api, job)
    if not kueue.is_finished(found):
        with _explained(job):
            api.delete(found)
        wait_deleted(api, found)
    now = _now(api, job)
    if change := kueue.forget_workload(now):
        api.patch(now, change)


def _patch(api: Api, job: Object, change: Object) -> None:
    found = workload(api, job)
    if not kueue.is_finished(found):  # else Kueue makes another one
        with _explained(job):
            api.patch(found, change)


@contextmanager
def _explained(job: Object) -> Iterator[None]:
    """Add the consequence to the error that this user may not change a Workload."""
    try:
        yield
    except Forbidden as error:
        queue = kueue.queue_of(job)
        what = f"queue {queue!r} decides when this job runs, and you may not change its Workload: {error.message}"
        raise Forbidden(what, fix=RIGHT) from error


def _now(api: Api, job: Object) -> Object:
    where = job["metadata"]
    return api.get(key_of(job), where["namespace"], where["name"])


def _find(api: Api, job: Object) -> Object | None:
    """The Workload of a job; None also if this user may not read it, or Kueue is away, which converts it."""
    with suppress(KitError):
        return kueue.workload_of(job, _select(job, api.select_once))
    return None


def _select(job: Object, select: Callable[..., list[Object]]) -> list[Object]:
    where = job["metadata"]
    return select("Workload", where["namespace"], labelSelector=f"{names.LABEL_JOB_UID}={where['uid']}")
