"""How a job's objects change over its life: owned, released, suspended, cancelled. Pure: manifests and patches.

A job is created suspended and has its children attached before it is released, so a crash in between leaks nothing:
what is not owned yet is the one claim that is to outlive the job, and what is not released runs nothing.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from kitctl import names

Object: TypeAlias = dict[str, Any]
OUTLIVES: Final = frozenset({"PersistentVolumeClaim"})  # snapshots stay when the job goes


def owned(child: Object, job: Object) -> Object:
    """The child, to be deleted with the job; a claim is left as it is."""
    if child["kind"] in OUTLIVES:
        return child
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    return child | {"metadata": child["metadata"] | {"ownerReferences": [owner]}}


def ours(job: Object) -> bool:
    """Whether kitctl (or its chart) made this object."""
    return bool(job["metadata"].get("labels", {}).get(names.LABEL_NAME) == names.APP_NAME)


def belongs(found: Object, job: Object) -> bool:
    """Whether an object that is there already is this job's child."""
    return any(owner["uid"] == job["metadata"]["uid"] for owner in found["metadata"].get("ownerReferences", []))


def leaving(found: Object, job: Object) -> bool:
    """Whether an object is on its way out: deleted, or left by a job of this name that is gone."""
    orphaned = of_name(found, job["metadata"]["name"]) and not belongs(found, job)
    return orphaned or "deletionTimestamp" in found["metadata"]


def of_name(found: Object, name: str) -> bool:
    """Whether an object is the child of a job of that name, be it an earlier one."""
    return ours(found) and any(owner["name"] == name for owner in found["metadata"].get("ownerReferences", []))


def half_submitted(job: Object, digest: str, user: str) -> bool:
    """Whether this is the job of that digest, created by this user and never released."""
    same = noted(job).get(names.ANNOTATION_SPEC_HASH) == digest and noted(job).get(names.ANNOTATION_USER, user) == user
    return ours(job) and waits_for_release(job) and same


def waits_for_release(job: Object) -> bool:
    """Whether a submit has made this job and not come to its end."""
    return noted(job).get(names.ANNOTATION_RELEASED) == "false"


def unreleased(manifest: Object, submit: str, user: str) -> Object:
    """A job as submit makes it: its release is still to come, by this very call of submit, for this user."""
    marks = {
        names.ANNOTATION_RELEASED: "false",
        names.ANNOTATION_SUBMIT: submit,
        names.ANNOTATION_USER: user,
    }
    return manifest | {"metadata": manifest["metadata"] | {"annotations": noted(manifest) | marks}}


def taken_over(submit: str) -> Object:
    """The patch by which another call of submit goes on with a job: the earlier one may not release it any more."""
    return {"metadata": {"annotations": {names.ANNOTATION_SUBMIT: submit}}}


def held_by(job: Object, submit: str) -> bool:
    """Whether this call of submit may still release the job."""
    return noted(job).get(names.ANNOTATION_SUBMIT) == submit


def release(kind: str, *, queued: bool) -> Object:
    """The patch that lets a job's pods be made; with a queue that is Kueue's to do."""
    mark = {"metadata": {"annotations": {names.ANNOTATION_RELEASED: "true"}}}
    return mark if queued else mark | suspend(kind, wanted=False)


def suspend(kind: str, *, wanted: bool) -> Object:
    """The patch that suspends or resumes a job of either kind."""
    return {"spec": {"suspend": wanted} if kind == "Job" else {"runPolicy": {"suspend": wanted}}}


def cancel(kind: str, now: str) -> Object:
    """The patch that stops a job for good: its pods go, its spec stays."""
    return {"metadata": {"annotations": {names.ANNOTATION_CANCELLED: now}}} | suspend(kind, wanted=True)


def reopen(kind: str) -> Object:
    """The patch that starts a suspended or cancelled job."""
    return {"metadata": {"annotations": {names.ANNOTATION_CANCELLED: None}}} | suspend(kind, wanted=False)


def scale(kind: str, nodes: int) -> Object:
    """The patch that changes how many nodes an elastic job has: for an Indexed Job both numbers at once."""
    if kind == "Job":
        return {"spec": {"parallelism": nodes, "completions": nodes}}
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": nodes}}}}


def noted(thing: Object) -> dict[str, str]:
    """An object's annotations."""
    found: dict[str, str] = thing["metadata"].get("annotations", {})
    return found
