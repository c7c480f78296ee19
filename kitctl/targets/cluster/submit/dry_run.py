"""Dry runs of each object of a job, and of one of its pods, before anything is created.

The API server applies its schema, quotas, limit ranges, Pod Security and webhooks, and stores nothing.

Why: decision 31.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kitctl.base.errors import Forbidden, KitError, UnsupportedError
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import job_facts, lifecycle
from kitctl.targets.cluster.read.existing import find_existing, name_conflict
from kitctl.targets.cluster.submit import claims
from kitctl.targets.cluster.submit.claims import Claimant

# The server accepts these only when another object of the same job exists.
NEEDS_OTHERS: Final = frozenset({"RoleBinding"})
QUOTA_EXCEEDED: Final = "exceeded quota"


def dry_run_objects(api: Api, objects: Sequence[Object], claimant: Claimant, *, replaces: bool) -> None:
    """Dry-run all objects of a job.

    Args:
        api: the server.
        objects: the manifests; the job comes last.
        claimant: who uses the claim, if it exists already.
        replaces: whether a job of that name exists, and will be deleted first.

    Raises:
        KitError: for the first refusal.
        ConflictError: an object of that name exists and does not belong to this job.
    """
    for thing in objects:
        if thing["kind"] in NEEDS_OTHERS:
            continue
        try:
            with suppress(UnsupportedError):  # a webhook does not support dry runs
                api.create(thing, dry_run=True)
        except KitError as error:
            found = find_existing(api, thing)
            if isinstance(error, Forbidden) and not (found and thing["kind"] in lifecycle.OUTLIVES_JOB):
                raise  # the job that is there is deleted with its own
            if found is None and not (replaces and QUOTA_EXCEEDED in error.message):  # the old job frees its share
                raise
            if found and thing is not objects[-1]:
                _check(found, objects[-1]["metadata"]["name"], claimant)


def dry_run_pod(api: Api, spec: JobSpec, job: Object) -> None:
    """Dry-run one pod of a job.

    Raises:
        Forbidden: this user may not create pods, so the result is not known.
        UnsupportedError: a webhook does not support dry runs.
        KitError: for the refusal.
    """
    api.create(pod(spec, job), dry_run=True)


def pod(spec: JobSpec, job: Object) -> Object:
    """A pod as a job's controller would create it, without the service account, which does not exist yet. Pure."""
    template = job_facts.pod_template(job)
    left_out = set() if spec.security.service_account else {"serviceAccountName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"]
        | {"generateName": f"{job['metadata']['name']}-0-", "namespace": job["metadata"]["namespace"]},
        "spec": {key: value for key, value in template["spec"].items() if key not in left_out},
    }


def _check(found: Object, name: str, claimant: Claimant) -> None:
    """Refuse an object that a job of that name cannot use."""
    if "deletionTimestamp" in found["metadata"]:
        return
    if found["kind"] in lifecycle.OUTLIVES_JOB:
        claims.check(found, claimant)
    elif not lifecycle.is_child_of(found, name):
        raise name_conflict(found)
