"""Whose a claim for snapshots is: noted on the claim, asked before a job takes it up, and before it is deleted.

A claim outlives its job, so no owner reference says whose it is. Two notes do: the user who made it, and the uid of the
job that has it now. Nobody takes up another's by the mere name of a job, and nobody deletes what was not made for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kitctl import names
from kitctl.errors import ConflictError
from kitctl.targets.cluster import facts, lifecycle
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.existing import another, create_or_find, gone
from kitctl.targets.cluster.resources import Object

KIND = "PersistentVolumeClaim"


class Claimant(NamedTuple):
    """Who submits, and whether they said to go on from what an earlier job has kept."""

    user: str
    resume: bool


def attach(api: Api, manifest: Object, job: Object, claimant: Claimant) -> None:
    """Have the claim be this job's: a new one, or that of an earlier job of its name.

    Raises:
        ConflictError: it is somebody else's.
    """
    notes = {names.ANNOTATION_USER: claimant.user, names.ANNOTATION_JOB_UID: job["metadata"]["uid"]}
    fresh = manifest | {"metadata": manifest["metadata"] | {"annotations": lifecycle.noted(manifest) | notes}}
    for found in create_or_find(api, fresh):
        if "deletionTimestamp" in found["metadata"]:
            gone(api, found)
            continue
        check(found, claimant)
        change = {"metadata": {"annotations": {names.ANNOTATION_JOB_UID: job["metadata"]["uid"]}}}
        try:
            api.patch(found, change, version=found["metadata"]["resourceVersion"])
        except ConflictError:
            continue  # it has changed: look again
        return


def check(found: Object, claimant: Claimant) -> None:
    """Refuse a claim that this user has not made and did not ask for.

    Raises:
        ConflictError: as it says.
    """
    if not lifecycle.ours(found) or facts.owners(found):
        raise another(found)
    maker = lifecycle.noted(found).get(names.ANNOTATION_USER, "")
    if claimant.resume or (maker and maker == claimant.user):
        return
    whose = f"and was made by {maker}" if maker else "and nobody has noted who made it"
    fix = "choose another --name, or go on from its snapshots with --resume"
    raise ConflictError(f"claim {found['metadata']['name']!r} keeps another job's snapshots {whose}", fix=fix)


def remove(api: Api, job: Object, user: str, tell: Callable[[str], None]) -> bool:
    """Delete the claim that was made for a job, which is gone by now; tells why it stays. Whether it is deleted."""
    namespace, name = job["metadata"]["namespace"], facts.claim(job)
    found = api.find(KIND, namespace, name) if name else None
    if found is None:
        return False
    found |= {"kind": KIND}
    if why := why_kept(found, job, user):
        tell(f"claim {name!r} stays: {why}; kubectl delete pvc -n {namespace} {name} deletes it all the same")
        return False
    api.delete(found, version=found["metadata"]["resourceVersion"])
    gone(api, found)
    return True


def why_kept(found: Object, job: Object, user: str) -> str:
    """Why a claim must not be deleted with this job by this user; empty if it may. Pure."""
    notes = lifecycle.noted(found)
    if not lifecycle.ours(found) or facts.owners(found) or names.ANNOTATION_JOB_UID not in notes:
        return "it was not made by kitctl submit"
    if notes[names.ANNOTATION_JOB_UID] != job["metadata"]["uid"]:
        return "it was not made for this job, or another one has it by now"
    maker = notes.get(names.ANNOTATION_USER, "")
    return "" if maker == user else f"{maker or 'somebody else'} made it, and you are {user}"
