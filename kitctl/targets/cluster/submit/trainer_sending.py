"""The ConfigMap with the trainer: one for all jobs of a version in a namespace, which owns none of them.

Each job that uses it is one of its owners, so Kubernetes deletes it with the last of them. Nobody can change it, since
it is immutable; pods compare its digest, since anybody who may create ConfigMaps could have made it.

Why: decision 53.
"""

from __future__ import annotations

from kitctl.base import names
from kitctl.base.errors import ConflictError, NotFound
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import lifecycle
from kitctl.targets.cluster.read.existing import create_or_find, find_existing, name_conflict, wait_deleted


def is_shared(child: Object) -> bool:
    """Whether a child of a job is shared by several."""
    labels = child["metadata"].get("labels", {})
    return (
        child["kind"] == "ConfigMap"
        and labels.get(names.LABEL_COMPONENT) == "sources"
        and names.LABEL_INSTANCE not in labels
    )


def attach(api: Api, manifest: Object, owner: Object) -> None:
    """Make a job, or a helper pod, one of its owners; it is created if there is none.

    Raises:
        ConflictError: an object of its name was not made by kitctl, or has another content.
    """
    found = find_existing(api, manifest)  # it is there already for all jobs but the first, and is large
    if found and _add_owner(api, found, manifest, owner):
        return
    for found in create_or_find(api, lifecycle.with_owner_reference(manifest, owner)):
        if _add_owner(api, found, manifest, owner):
            return


def _add_owner(api: Api, found: Object, manifest: Object, owner: Object) -> bool:
    """Whether it is an owner now; else it was deleted, or another job came or went: the caller tries again."""
    where = found["metadata"]
    if "deletionTimestamp" in where:
        wait_deleted(api, found)
        return False
    if not lifecycle.is_kitctl_object(found) or found.get("binaryData") != manifest["binaryData"]:
        raise name_conflict(found)
    owners = where.get("ownerReferences", [])
    (own,) = lifecycle.with_owner_reference(manifest, owner)["metadata"]["ownerReferences"]
    if all(one["uid"] != own["uid"] for one in owners):
        try:
            api.patch(found, {"metadata": {"ownerReferences": [*owners, own]}}, version=where["resourceVersion"])
        except (ConflictError, NotFound):
            return False
    return True
