"""Finding jobs and their pods: each kind of job has its own objects, and its own labels on pods."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kitctl.base import names
from kitctl.base.errors import Forbidden, KitError, UnsupportedError, UsageError
from kitctl.kinds import JobKind, all_kinds, of_object
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.conflicts import no_job

OURS: Final = f"{names.LABEL_NAME}={names.APP_NAME}"
PODS: Final = f"{OURS},{names.LABEL_COMPONENT}=trainer"


def find(api: Api, namespace: str, name: str, *likely: str) -> Object:
    """The job of that name; ``likely`` are keys of kinds to look at first.

    Raises:
        JobNotFound: there is none that runs kitctl.
    """
    kinds = sorted(all_kinds().values(), key=lambda kind: kind.key not in likely)
    job = lookup(api, namespace, name, *kinds)
    if job is None or not of_object(job).runs_kit(job):
        gone = "" if has_namespace(api, namespace) else ", which does not exist"
        raise no_job(name, f"in namespace {namespace!r}{gone}", lambda: job_names(api, namespace))
    return job


def has_namespace(api: Api, namespace: str) -> bool:
    """Whether it exists; also if this user may not know, as many may read no namespace itself."""
    try:
        return bool(api.get("Namespace", None, namespace))
    except UsageError:  # what a namespace that does not exist is everywhere
        return False
    except KitError:
        return True


def lookup(api: Api, namespace: str, name: str, *among: JobKind) -> Object | None:
    """The job of that name, of the first kind that has one.

    Raises:
        Forbidden: this user may read no such kind; many users may not read all of them.
    """
    refusals, looked = [], among or tuple(all_kinds().values())
    for kind in looked:
        try:
            if job := api.find(kind.key, namespace, name):
                return job
        except Forbidden as refusal:
            refusals.append(refusal)
    if len(refusals) == len(looked):
        raise refusals[0]
    return None


def jobs(api: Api, namespace: str | None) -> list[Object]:
    """All jobs of a namespace, or of the cluster: a request for each kind.

    Raises:
        Forbidden: this user may not read the default kind, and there are no others.
    """
    found: list[Object] = []
    refusals = []
    for kind in all_kinds().values():
        try:
            found += _of_kind(api, kind, namespace)
        except (Forbidden, UnsupportedError) as refusal:
            if not kind.operator:  # the others may be missing, and many users may not read them
                refusals.append(refusal)
    if refusals and not found:
        if namespace is None and isinstance(refusals[0], Forbidden):
            fix = "ask for this right, or use a namespace where you have it: kitctl list -n NAMESPACE"
            raise Forbidden(refusals[0].message, fix=fix) from refusals[0]
        raise refusals[0]
    return found


def job_names(api: Api, namespace: str) -> list[str]:
    """The names of a namespace's jobs, the oldest first.

    Raises:
        Forbidden: as of ``jobs``.
    """
    by_age = sorted(jobs(api, namespace), key=lambda job: str(job["metadata"].get("creationTimestamp")))
    return [str(job["metadata"]["name"]) for job in by_age]


def _of_kind(api: Api, kind: JobKind, namespace: str | None) -> list[Object]:
    found = api.select(kind.key, namespace, **({"labelSelector": OURS} if kind.labelled else {}))
    return [job for job in found if kind.runs_kit(job)]


def made_of(api: Api, job: Object) -> Object | None:
    """What its controller has made of a job for another controller; None: nothing of the kind is known."""
    where, key = job["metadata"], of_object(job).made_of
    with suppress(KitError):
        return api.find(key, where["namespace"], where["name"]) if key else None
    return None


def pods(api: Api, job: Object) -> list[Object]:
    """The pods of a job's nodes, those that have ended included."""
    where = job["metadata"]
    return api.select("Pod", where["namespace"], labelSelector=f"{PODS},{of_object(job).job_label}={where['name']}")
