"""Objects that may be there already: created if they are not, recognized if they are, waited for while they go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from kitctl import names
from kitctl.errors import ConflictError, Forbidden, KitError, TargetError
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.lifecycle import noted
from kitctl.targets.cluster.resources import Object

POLL_SECONDS: Final = 0.5
GONE_SECONDS: Final = 30.0  # for what needs no grace; pods have theirs on top
TRIES: Final = 8  # of two who change one object in turns, each is through long before


def create_once(api: Api, manifest: Object) -> Object:
    """Create an object that bears the mark of this call; sent again after a lost answer, it finds its own.

    Raises:
        ConflictError: there is another one of that name.
    """
    where = manifest["metadata"]
    try:
        return api.create(manifest)
    except ConflictError:
        found = api.find(manifest["kind"], where["namespace"], where["name"])
        if found is None or noted(found).get(names.ANNOTATION_SUBMIT) != where["annotations"][names.ANNOTATION_SUBMIT]:
            raise
        return found


def create_or_find(api: Api, manifest: Object) -> Iterator[Object]:
    """Create an object; where one of its name is there, give that one, again and again until the caller is content.

    Ends once the object was created. An answer that was lost on the way makes the caller see its own object.

    Raises:
        KitError: it cannot be created, and there is none.
        ConflictError: the caller never was content.
    """
    where = manifest["metadata"]
    for _ in range(TRIES):
        try:
            api.create(manifest)
        except KitError as error:  # a full quota is told before a name that is taken
            found = there(api, manifest)
            if found is None and not isinstance(error, ConflictError):
                raise
        else:
            return
        if found is not None:
            yield found
    raise ConflictError(f"{manifest['kind']} {where['name']!r} is being changed by somebody else", fix="try again")


def there(api: Api, manifest: Object) -> Object | None:
    """The object of that kind and name, with its ``kind``; None too where this user may not look."""
    where = manifest["metadata"]
    with suppress(Forbidden):
        if found := api.find(manifest["kind"], where["namespace"], where["name"]):
            return found | {"kind": manifest["kind"]}
    return None


def another(found: Object) -> ConflictError:
    """The error for an object that is in a job's way."""
    what = f"{found['kind']} {found['metadata']['name']!r} is there already, and not this job's"
    return ConflictError(what, fix="choose another --name")


def gone(api: Api, found: Object, seconds: float = GONE_SECONDS) -> None:
    """Wait until an object that was found, with its ``kind``, is no more; a new one of its name is another.

    Raises:
        TargetError: it still is after ``seconds``.
    """
    kind, where = found["kind"], found["metadata"]
    deadline = time.monotonic() + seconds
    while (now := api.find(kind, where["namespace"], where["name"])) and now["metadata"]["uid"] == where["uid"]:
        if time.monotonic() > deadline:
            fix = f"see what holds it: kubectl get {kind} -n {where['namespace']} {where['name']} -o yaml"
            raise TargetError(f"{kind} {where['name']!r} is not gone after {seconds:.0f} s", fix=fix)
        time.sleep(POLL_SECONDS)
