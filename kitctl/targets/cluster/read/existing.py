"""Objects that may exist already: create them if they do not, find them if they do, wait until they are deleted.

Why: decision 30.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from kitctl.base import names
from kitctl.base.errors import ConflictError, Forbidden, KitError, TargetError
from kitctl.kinds import all_kinds
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object, key_of
from kitctl.targets.cluster.read import finding
from kitctl.targets.cluster.read.lifecycle import annotations_of, kept_by

POLL_SECONDS: Final = 0.5
DELETE_SECONDS: Final = 30.0  # for an object without pods; pods add their grace period
HELD_SECONDS: Final = 3.0  # after which it is told who keeps an object
TRIES: Final = 8  # two clients that change one object in turns both succeed long before


def create_once(api: Api, manifest: Object) -> Object:
    """Create an object with this call's id; a retry after a lost response finds the object that it created.

    Raises:
        ConflictError: another object of that name exists.
    """
    where = manifest["metadata"]
    try:
        return api.create(manifest)
    except ConflictError:
        found = api.find(key_of(manifest), where["namespace"], where["name"])
        call = annotations_of(manifest)[names.ANNOTATION_SUBMIT]
        if found is None or annotations_of(found).get(names.ANNOTATION_SUBMIT) != call:
            raise
        return found


def create_or_find(api: Api, manifest: Object) -> Iterator[Object]:
    """Create an object. While one of its name exists, yield that one, and try again if the caller continues.

    Ends once the object is created. After a lost response the caller gets the object that it created itself.

    Raises:
        KitError: it cannot be created, and none exists.
        ConflictError: the caller rejected what exists too many times.
    """
    where = manifest["metadata"]
    for _ in range(TRIES):
        try:
            api.create(manifest)
        except KitError as error:  # the server reports a full quota before a name that is taken
            found = find_existing(api, manifest)
            if found is None and not isinstance(error, ConflictError):
                raise
        else:
            return
        if found is not None:
            yield found
    raise ConflictError(f"{manifest['kind']} {where['name']!r} is being changed by another client", fix="try again")


def find_existing(api: Api, manifest: Object) -> Object | None:
    """The object of a manifest's kind and name; None if there is none or it may not be read."""
    where = manifest["metadata"]
    with suppress(Forbidden):
        return api.find(key_of(manifest), where["namespace"], where["name"])
    return None


def name_conflict(found: Object) -> ConflictError:
    """The error for an object that has a name the job needs."""
    what = f"{found['kind']} {found['metadata']['name']!r} already exists and does not belong to this job"
    return ConflictError(what, fix="choose another --name")


def wait_deleted(api: Api, found: Object, seconds: float = DELETE_SECONDS) -> None:
    """Wait until an object is deleted, which is given with its ``kind``; a new object of its name does not count.

    Somebody's finalizer that keeps it is told after a moment.

    Raises:
        TargetError: it still exists after ``seconds``.
    """
    kind, where = key_of(found), found["metadata"]
    what, began, told = f"{kind} {where['name']!r}", time.monotonic(), False
    while (now := api.find(kind, where["namespace"], where["name"])) and now["metadata"]["uid"] == where["uid"]:
        waited, holder = time.monotonic() - began, kept_by(now)
        if waited > seconds:
            still = f"{what} still exists after {seconds:.0f} s"
            raise _pod_stays(api, now, still) or _still_exists(now, still, holder)
        if holder and waited > HELD_SECONDS and not told:
            told = True
            api.warn(f"{what} is kept by its finalizer {holder}: waiting for what set that, for up to {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def _pod_stays(api: Api, found: Object, what: str) -> TargetError | None:
    """The error for a job that waits for a pod, which somebody's finalizer keeps; None: there is no such pod."""
    if key_of(found) not in {kind.key for kind in all_kinds().values()}:
        return None
    with suppress(KitError):
        kept = ((pod | {"kind": "Pod"}, kept_by(pod)) for pod in finding.pods(api, found))
        pod, holder = next((one for one in kept if one[1]), (found, ""))
        return _still_exists(pod, f"{what}: it waits for pod {pod['metadata']['name']!r}", holder) if holder else None
    return None


def _still_exists(found: Object, what: str, holder: str) -> TargetError:
    where = found["metadata"]
    place = f"{key_of(found)} -n {where['namespace']} {where['name']}"
    if not holder:
        return TargetError(what, fix=f"see its finalizers: kubectl get {place} -o yaml")
    release = f"""kubectl patch {place} --type=merge -p '{{"metadata": {{"finalizers": null}}}}'"""
    fix = f"it goes once {holder} is released by what set it; if that is gone for good: {release}"
    return TargetError(f"{what}: its finalizer {holder} keeps it", fix=fix)
