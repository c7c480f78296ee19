"""From a submission to a running job: created suspended, its children attached, then released.

Run again after a crash between any two requests, it goes on where it stopped. If a child is refused, the job that was
created for it is deleted again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kitctl import names, render
from kitctl.errors import ConflictError, Forbidden, KitError, TargetError
from kitctl.targets import Change, Submission
from kitctl.targets.cluster import facts, lifecycle, preflight
from kitctl.targets.cluster.api import Api, Object
from kitctl.targets.conflicts import already_there

KINDS: Final = ("Job", "PyTorchJob")
POLL_SECONDS: Final = 0.5
GONE_SECONDS: Final = 30.0  # for what needs no grace; pods have theirs on top


def submit(api: Api, submission: Submission, tell: Callable[[str], None]) -> Object:
    """Submit a job; returns it as it is then.

    Raises:
        ConflictError: a job of that name, or an object that is not this job's, is there already.
        UsageError: the cluster could never run it.
    """
    spec = preflight.permitted(api, submission.spec, tell)
    if submission.checks:
        preflight.check(api, spec)
    run = uuid.uuid4().hex[:8]
    *children, manifest = render.manifests(spec, submission.sources, suspended=True, run=run)
    begun = _begun(api, manifest, replace=submission.replace, tell=tell)
    job = begun or api.apply(lifecycle.unreleased(manifest))
    try:
        # What outlives the job comes last: if anything else is refused, nothing stays.
        for child in sorted(children, key=lambda one: one["kind"] in lifecycle.OUTLIVES):
            _attach(api, child, job)
    except KitError:
        if not begun:
            with suppress(KitError):  # the first error is the one to tell; the next submit finds the rest
                api.delete(job["kind"], spec.namespace, spec.name)
        raise
    patch = lifecycle.release(job["kind"], queued=bool(spec.scheduling.queue))
    return api.patch(job["kind"], spec.namespace, spec.name, patch)


def preview(api: Api, submission: Submission, tell: Callable[[str], None]) -> list[Change]:
    """What submitting would change, object by object, as the API server itself would do it."""
    spec = preflight.permitted(api, submission.spec, tell)
    job = find(api, spec.namespace, spec.name, "PyTorchJob" if spec.kind == "PyTorchJob" else "Job")
    objects = render.manifests(spec, submission.sources, run=facts.run(job) if job else "")
    return [_previewed(api, lifecycle.owned(one, job) if job and one is not objects[-1] else one) for one in objects]


def find(api: Api, namespace: str, name: str, *kinds: str) -> Object | None:
    """The job of that name, of the first kind that has one."""
    for kind in kinds or KINDS:
        try:
            if job := api.find(kind, namespace, name):
                return job | {"kind": kind}
        except Forbidden:
            if kind == KINDS[0]:
                raise  # the other kind is one that many users have no right to see
    return None


def gone(api: Api, kind: str, namespace: str, name: str, seconds: float = GONE_SECONDS) -> None:
    """Wait until an object is no more.

    Raises:
        TargetError: it still is after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while api.find(kind, namespace, name):
        if time.monotonic() > deadline:
            fix = f"see what holds it: kubectl get {kind} -n {namespace} {name} -o yaml"
            raise TargetError(f"{kind} {name!r} is not gone after {seconds:.0f} s", fix=fix)
        time.sleep(POLL_SECONDS)


def _begun(api: Api, manifest: Object, *, replace: bool, tell: Callable[[str], None]) -> Object | None:
    """This very job, half submitted by an earlier call; None if there is no job of that name (any more)."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    job = find(api, namespace, name)
    if job is None:
        return None
    digest = lifecycle.noted(manifest).get(names.ANNOTATION_SPEC_HASH, "")
    if job["kind"] == manifest["kind"] and lifecycle.half_submitted(job, digest):
        tell(f"job {name!r} was half submitted; going on")
        return job
    if not lifecycle.ours(job):
        raise ConflictError(
            f"name: {job['kind']} {name!r} is there already, and not kitctl's", fix="choose another --name"
        )
    if not replace:
        raise already_there(name)
    tell(f"replacing job {name!r}: waiting until its pods have ended")
    api.delete(job["kind"], namespace, name)
    gone(api, job["kind"], namespace, name, facts.grace(job) + GONE_SECONDS)
    return None


def _attach(api: Api, child: Object, job: Object) -> None:
    kind, namespace, name = child["kind"], child["metadata"]["namespace"], child["metadata"]["name"]
    found = api.find(kind, namespace, name)
    if found and lifecycle.leaving(found, job):
        gone(api, kind, namespace, name)
        found = None
    if found is None:
        api.apply(lifecycle.owned(child, job))
    elif not lifecycle.belongs(found | {"kind": kind}, job):
        raise ConflictError(f"{kind} {name!r} is there already, and not this job's", fix="choose another --name")


def _previewed(api: Api, manifest: Object) -> Change:
    where = manifest["metadata"]
    live = api.find(manifest["kind"], where["namespace"], where["name"])
    try:
        return Change(before=live, after=api.apply(manifest, dry_run=True))
    except KitError as error:
        if live is None:
            raise
        return Change(before=live, after=_merged(live, manifest), refusal=error.message)


def _merged(live: Object, manifest: Object) -> Object:
    """What would be there if the server allowed it; lists are replaced whole."""
    both = {key: _merged(live[key], manifest[key]) for key in manifest if _both_maps(live.get(key), manifest[key])}
    return live | manifest | both


def _both_maps(one: object, other: object) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)
