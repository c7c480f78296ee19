"""What the API server would say to each object of a job, and to its pods, asked by dry runs before anything is made.

Grammar, quotas, limit ranges, Pod Security, webhooks: all of them have their word, and nothing has to be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kitctl.errors import KitError, UnsupportedError
from kitctl.spec import JobSpec
from kitctl.targets.cluster import claims, facts, lifecycle
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.claims import Claimant
from kitctl.targets.cluster.existing import another, there
from kitctl.targets.cluster.resources import Object

# What a server only takes once another object of the same job is there.
LATER: Final = frozenset({"RoleBinding"})
NO_QUOTA_LEFT: Final = "exceeded quota"


def rehearse(api: Api, objects: Sequence[Object], claimant: Claimant, *, replaces: bool) -> None:
    """Have the server look at all objects of a job, which comes last.

    Args:
        api: the server.
        objects: as they are to be created.
        claimant: who takes up the claim, if there is one already.
        replaces: whether a job of that name is there, and is to go first.

    Raises:
        KitError: as the first refusal says.
        ConflictError: an object is in the way that is not this job's.
    """
    for thing in objects:
        if thing["kind"] in LATER:
            continue
        try:
            with suppress(UnsupportedError):  # a webhook that takes no part in dry runs
                api.create(thing, dry_run=True)
        except KitError as error:
            found = there(api, thing)
            if found is None and not (replaces and NO_QUOTA_LEFT in error.message):  # the old one will give its share
                raise
            if found and thing is not objects[-1]:
                _check(found, objects[-1]["metadata"]["name"], claimant)


def try_pod(api: Api, spec: JobSpec, job: Object) -> None:
    """Have the server look at one pod of a job.

    Raises:
        Forbidden: this user may not create pods, so nobody knows.
        UnsupportedError: a webhook takes no part in dry runs.
        KitError: as the refusal says.
    """
    api.create(pod(spec, job), dry_run=True)


def pod(spec: JobSpec, job: Object) -> Object:
    """A pod as a job's controller would make it; its own account is not there yet, so it goes without. Pure."""
    template = facts.template(job)
    given = {"serviceAccountName"} if not spec.security.service_account else set()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"]
        | {"generateName": f"{job['metadata']['name']}-0-", "namespace": job["metadata"]["namespace"]},
        "spec": {key: value for key, value in template["spec"].items() if key not in given},
    }


def _check(found: Object, name: str, claimant: Claimant) -> None:
    """Refuse what is in the way of a job of that name."""
    if "deletionTimestamp" in found["metadata"]:
        return
    if found["kind"] in lifecycle.OUTLIVES:
        claims.check(found, claimant)
    elif not lifecycle.of_name(found, name):
        raise another(found)
