"""How a job's objects change over its life: owned, released, suspended, cancelled. Pure: manifests and patches.

A job is created suspended, and its children get their owner references before it is released. So a crash in between
leaks nothing: only the claim has no owner, since it outlives the job, and no pod runs before the release.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from kitctl.base import names
from kitctl.kinds import all_kinds, of_object

Object: TypeAlias = dict[str, Any]
# Kubernetes' own, and Kueue's, which end by themselves.
OWN_FINALIZERS: Final = frozenset(
    {
        "orphan",
        "foregroundDeletion",
        *(kind.pod_finalizer for kind in all_kinds().values()),
        "kubernetes.io/pvc-protection",
        "kueue.x-k8s.io/resource-in-use",
    }
)
HELM_RELEASE: Final = "meta.helm.sh/release-name"  # an annotation of Helm's
APPLIED: Final = "service,configmap,secret,networkpolicy,serviceaccount,role,rolebinding"  # kinds besides the job's
OUTLIVES_JOB: Final = frozenset({"PersistentVolumeClaim"})  # snapshots stay when the job is deleted


def with_owner_reference(child: Object, job: Object) -> Object:
    """The child with the job as its owner, which deletes it with the job; a claim is returned unchanged."""
    if child["kind"] in OUTLIVES_JOB:
        return child
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    return child | {"metadata": child["metadata"] | {"ownerReferences": [owner]}}


def is_kitctl_object(found: Object) -> bool:
    """Whether kitctl or its chart made this object."""
    return bool(found["metadata"].get("labels", {}).get(names.LABEL_NAME) == names.APP_NAME)


def is_submitted(job: Object) -> bool:
    """Whether submit has created it; else it was applied from a manifest, or is of a Helm release."""
    return names.ANNOTATION_SUBMIT in annotations_of(job)


def identified(job: Object, live: Object) -> Object:
    """A job with what Kubernetes has chosen to tell the pods of the live one from all others."""
    template, there = (one.get("spec", {}).get("template", {}).get("metadata") for one in (job, live))
    if not (template and there):
        return job
    identity = of_object(live).identity_labels
    chosen = {key: text for key, text in there.get("labels", {}).items() if key in identity}
    labels = {key: text for key, text in template.get("labels", {}).items() if key not in identity} | chosen
    selector = {key: live["spec"][key] for key in ("selector",) if key in live["spec"]}
    spec = job["spec"] | selector | {"template": job["spec"]["template"] | {"metadata": template | {"labels": labels}}}
    return job | {"spec": spec}


def remains(job: Object) -> str:
    """What stays of a job that submit has not made, as its other objects are not its own, and how to delete it."""
    where = job["metadata"]
    namespace, labels = where["namespace"], where.get("labels", {})
    if labels.get(names.LABEL_MANAGED_BY) == names.HELM:
        release = where.get("annotations", {}).get(HELM_RELEASE, "RELEASE")
        return f"is of a Helm release, whose other objects stay: helm uninstall {release} -n {namespace}"
    if is_submitted(job):
        return ""
    selector = f"-l {names.LABEL_INSTANCE}={where['name']}"
    return f"was applied from a manifest, whose other objects stay: kubectl delete {APPLIED} -n {namespace} {selector}"


def kept_by(found: Object) -> str:
    """The finalizer of somebody else that keeps an object which is being deleted; empty: none does."""
    others = (one for one in found["metadata"].get("finalizers") or [] if one not in OWN_FINALIZERS)
    return next(others, "") if found["metadata"].get("deletionTimestamp") else ""


def is_owned_by(found: Object, job: Object) -> bool:
    """Whether the job owns an object."""
    return any(owner["uid"] == job["metadata"]["uid"] for owner in found["metadata"].get("ownerReferences", []))


def is_terminating(found: Object, job: Object) -> bool:
    """Whether an object is being deleted, or is about to be, as the child of an earlier job of this name."""
    orphaned = is_child_of(found, job["metadata"]["name"]) and not is_owned_by(found, job)
    return orphaned or "deletionTimestamp" in found["metadata"]


def is_child_of(found: Object, name: str) -> bool:
    """Whether an object's owner is a job of that name, possibly an earlier one."""
    owners = found["metadata"].get("ownerReferences", [])
    return is_kitctl_object(found) and any(owner["name"] == name for owner in owners)


def is_partial_submit(job: Object, digest: str, user: str) -> bool:
    """Whether this user created the job of that digest and never released it."""
    marks = annotations_of(job)
    same = marks.get(names.ANNOTATION_SPEC_HASH) == digest and marks.get(names.ANNOTATION_USER, user) == user
    return is_kitctl_object(job) and is_pending(job) and same


def is_pending(job: Object) -> bool:
    """Whether a submit created this job and has not released it yet."""
    return annotations_of(job).get(names.ANNOTATION_RELEASED) == "false"


def mark_pending(manifest: Object, submit: str, user: str) -> Object:
    """A job's manifest, marked as not released, with the id of the call of submit that may release it, and the user."""
    marks = {
        names.ANNOTATION_RELEASED: "false",
        names.ANNOTATION_SUBMIT: submit,
        names.ANNOTATION_USER: user,
    }
    return manifest | {"metadata": manifest["metadata"] | {"annotations": annotations_of(manifest) | marks}}


def take_over(submit: str) -> Object:
    """The patch by which another call of submit takes a job over: the earlier call may not release it any more."""
    return {"metadata": {"annotations": {names.ANNOTATION_SUBMIT: submit}}}


def is_held_by(job: Object, submit: str) -> bool:
    """Whether this call of submit may still release the job."""
    return annotations_of(job).get(names.ANNOTATION_SUBMIT) == submit


def release(job: Object, queue: str) -> Object:
    """The patch that releases a job: it is unsuspended, or put into its queue, which then unsuspends it.

    In a queue from the start, it could be started before the objects exist that it needs.
    """
    mark = {names.ANNOTATION_RELEASED: "true"}
    if queue:
        return {"metadata": {"annotations": mark, "labels": {names.LABEL_QUEUE: queue}}}
    return {"metadata": {"annotations": mark}} | of_object(job).suspend(suspended=False)


def outside_queue(manifest: Object) -> Object:
    """A job's manifest in a queue that does not exist, until its release puts it into its own."""
    where = manifest["metadata"]
    if names.LABEL_QUEUE not in where["labels"]:
        return manifest
    return manifest | {"metadata": where | {"labels": where["labels"] | {names.LABEL_QUEUE: names.QUEUE_OF_UNRELEASED}}}


def cancelled(now: str) -> Object:
    """The patch that marks a job as stopped for good."""
    return {"metadata": {"annotations": {names.ANNOTATION_CANCELLED: now}}}


UNCANCELLED: Final[Object] = {"metadata": {"annotations": {names.ANNOTATION_CANCELLED: None}}}


def annotations_of(found: Object) -> dict[str, str]:
    """An object's annotations."""
    marks: dict[str, str] = found["metadata"].get("annotations", {})
    return marks
