"""Ownership of claims for snapshots: recorded on the claim, checked before a job uses it and before it is deleted.

A claim outlives its job, so it has no owner reference. Two annotations stand in for it: the user who created it, and
the uid of the job that has it now. A job's name alone gives no access to another user's claim, and a claim is only
deleted with the job that it was created for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kitctl.base import names
from kitctl.base.errors import ConflictError
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import finding, job_facts, lifecycle
from kitctl.targets.cluster.read.existing import create_or_find, name_conflict, wait_deleted

KIND = "PersistentVolumeClaim"


class Claimant(NamedTuple):
    """Who submits, and whether they asked to resume from an earlier job's snapshots."""

    user: str
    resume: bool


def attach(api: Api, manifest: Object, job: Object, claimant: Claimant) -> None:
    """Make the claim this job's: a new one, or that of an earlier job of its name.

    Raises:
        ConflictError: it belongs to another user, or was not made by kitctl.
    """
    marks = {names.ANNOTATION_USER: claimant.user, names.ANNOTATION_JOB_UID: job["metadata"]["uid"]}
    annotations = lifecycle.annotations_of(manifest) | marks
    for found in create_or_find(api, manifest | {"metadata": manifest["metadata"] | {"annotations": annotations}}):
        if "deletionTimestamp" in found["metadata"]:
            wait_deleted(api, found)
            continue
        check(found, claimant)
        change = {"metadata": {"annotations": {names.ANNOTATION_JOB_UID: job["metadata"]["uid"]}}}
        try:
            api.patch(found, change, version=found["metadata"]["resourceVersion"])
        except ConflictError:
            continue  # it has changed: read it again
        return


def check(found: Object, claimant: Claimant) -> None:
    """Refuse a claim that this user did not create and did not ask to resume from.

    Raises:
        ConflictError: with the claim's creator, if known.
    """
    if not lifecycle.is_kitctl_object(found) or job_facts.owner_keys(found):
        raise name_conflict(found)
    creator = lifecycle.annotations_of(found).get(names.ANNOTATION_USER, "")
    if claimant.resume or (creator and creator == claimant.user):
        return
    by = f"created by {creator}" if creator else "its creator is not recorded"
    fix = "choose another --name, or resume from its snapshots with --resume"
    raise ConflictError(f"claim {found['metadata']['name']!r} keeps another job's snapshots ({by})", fix=fix)


def remove(api: Api, job: Object, user: str, warn: Callable[[str], None]) -> bool:
    """Delete the claim that was created for a deleted job. Returns whether it is deleted; warns if not."""
    namespace, name = job["metadata"]["namespace"], job_facts.snapshot_claim(job)
    found = api.find(KIND, namespace, name) if name else None
    if found is None:
        return False
    if why := why_kept(found, job, user):
        warn(f"claim {name!r} stays: {why}; {_anyway(found)}")
        return False
    _delete(api, found)
    return True


def remove_left(api: Api, namespace: str, name: str, user: str) -> bool:
    """Delete the claim that a deleted job has left. Returns whether there was one.

    Raises:
        ConflictError: this user must not delete it, or a job uses it.
    """
    found = api.find(KIND, namespace, name)
    if found is None:
        return False
    if why := why_not_yours(found, user):
        raise ConflictError(f"claim {name!r} stays: {why}", fix=_anyway(found))
    users = (job["metadata"]["name"] for job in finding.jobs(api, namespace) if job_facts.snapshot_claim(job) == name)
    if other := next(users, ""):
        raise ConflictError(f"claim {name!r} stays: job {other!r} uses it", fix=f"kitctl delete {other}, then again")
    _delete(api, found)
    return True


def why_kept(found: Object, job: Object, user: str) -> str:
    """Why this user must not delete a claim with this job; empty if they may. Pure."""
    made_for = lifecycle.annotations_of(found).get(names.ANNOTATION_JOB_UID)
    if _is_submits(found) and made_for != job["metadata"]["uid"]:
        return "it was not made for this job, or another job has it now"
    return why_not_yours(found, user)


def why_not_yours(found: Object, user: str) -> str:
    """Why a claim is not one that ``kitctl submit`` made for this user; empty if it is. Pure."""
    if not _is_submits(found):
        return "it was not made by kitctl submit"
    creator = lifecycle.annotations_of(found).get(names.ANNOTATION_USER, "")
    return "" if creator == user else f"{creator or 'another user'} created it, and you are {user}"


def _is_submits(found: Object) -> bool:
    marks = lifecycle.annotations_of(found)
    return lifecycle.is_kitctl_object(found) and not job_facts.owner_keys(found) and names.ANNOTATION_JOB_UID in marks


def _anyway(found: Object) -> str:
    where = found["metadata"]
    return f"kubectl delete pvc -n {where['namespace']} {where['name']} deletes it anyway"


def _delete(api: Api, found: Object) -> None:
    found |= {"kind": KIND}
    api.delete(found, version=found["metadata"]["resourceVersion"])
    wait_deleted(api, found)
