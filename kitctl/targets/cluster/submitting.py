"""From a submission to a running job: created suspended, its children attached, then released.

Run again after a crash between any two requests, it goes on where it stopped. If a child is refused, the job that was
created for it is deleted again. Of two that submit one name at once, one creates the job, and the other is told.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from kitctl import names, render
from kitctl.errors import ConflictError, Forbidden, KitError, NotFound, UnsupportedError, UsageError
from kitctl.spec import JobSpec
from kitctl.targets import Change, Submission
from kitctl.targets.cluster import claims, facts, lifecycle, preflight, rehearsal, runsecret
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.claims import Claimant
from kitctl.targets.cluster.existing import GONE_SECONDS, TRIES, another, create_once, create_or_find, gone, there
from kitctl.targets.cluster.resources import Object
from kitctl.targets.conflicts import already_there

KINDS: Final = ("Job", "PyTorchJob")


class Standing(NamedTuple):
    """The job of that name that is there; ``half`` if an earlier call of submit has left it half done."""

    job: Object
    half: bool


def submit(api: Api, submission: Submission, user: str, tell: Callable[[str], None]) -> Object:
    """Submit a job; returns it as it is then.

    Raises:
        ConflictError: a job of that name, or an object that is not this job's, is there already.
        UsageError: the cluster could never run it.
    """
    spec = preflight.fitted(api, submission.spec, tell)
    call = uuid.uuid4().hex
    *children, manifest = render.manifests(spec, submission.sources, suspended=True, standalone=False, run=call[:8])
    manifest = lifecycle.unreleased(manifest, call, user)
    standing = _standing(api, manifest, user, replace=submission.replace)
    claimant = Claimant(user, bool(spec.resume))
    if submission.checks:
        preflight.check(api, spec)
        rehearsal.rehearse(api, [*children, manifest], claimant, replaces=standing is not None)
        _try_pod(api, spec, manifest, tell)
    half = standing is not None and standing.half
    if standing is None:
        job = _created(api, manifest)
    elif half:
        job = _taken_over(api, standing.job, manifest, call, user, tell)
    else:
        for child in children:  # with checks or without: what is deleted cannot be brought back
            _check_claim(api, child, claimant)
        job = _replaced(api, standing.job, manifest, tell)
    try:
        # What outlives the job comes last: if anything else is refused, nothing stays.
        for child in sorted(children, key=lambda one: one["kind"] in lifecycle.OUTLIVES):
            _attach(api, child, job, claimant)
        return _released(api, job, call, queued=bool(spec.scheduling.queue))
    except KitError:
        if not half:
            with suppress(KitError):  # the first error is the one to tell; the next submit finds the rest
                _withdraw(api, job, call)
        raise


def preview(api: Api, submission: Submission, tell: Callable[[str], None]) -> list[Change]:
    """What submitting would change, object by object, as the API server itself would do it."""
    spec = preflight.fitted(api, submission.spec, tell)
    job = find(api, spec.namespace, spec.name, "PyTorchJob" if spec.kind == "PyTorchJob" else "Job")
    objects = render.manifests(spec, submission.sources, standalone=False, run=facts.run(job) if job else "")
    own = [lifecycle.owned(one, job) if job and one is not objects[-1] else one for one in objects]
    return [runsecret.masked(_previewed(api, one)) for one in own]


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


def _try_pod(api: Api, spec: JobSpec, manifest: Object, tell: Callable[[str], None]) -> None:
    """Refuse a job whose pods the cluster would never take; those that a quota has no room for now may wait for it."""
    try:
        with suppress(Forbidden, UnsupportedError):  # nobody knows, then
            rehearsal.try_pod(api, spec, manifest)
    except UsageError as error:
        if rehearsal.NO_QUOTA_LEFT not in error.message:
            raise
        tell(f"its pods wait until there is room for them: {error.message}")


def _standing(api: Api, manifest: Object, user: str, *, replace: bool) -> Standing | None:
    """The job of that name that is there, if it may be gone on with, or replaced; None if there is none."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    job = find(api, namespace, name)
    if job is None:
        return None
    digest = lifecycle.noted(manifest).get(names.ANNOTATION_SPEC_HASH, "")
    if job["kind"] == manifest["kind"] and lifecycle.half_submitted(job, digest, user):
        return Standing(job, half=True)
    if not lifecycle.ours(job):
        raise ConflictError(
            f"name: {job['kind']} {name!r} is there already, and not kitctl's", fix="choose another --name"
        )
    if not replace:
        raise already_there(name)
    return Standing(job, half=False)


def _created(api: Api, manifest: Object) -> Object:
    """The job, created by this call of submit."""
    where = manifest["metadata"]
    try:
        return create_once(api, manifest)
    except ConflictError as error:
        if api.find(manifest["kind"], where["namespace"], where["name"]) is None:
            raise
        raise already_there(where["name"]) from error  # somebody else was faster


def _taken_over(api: Api, job: Object, manifest: Object, call: str, user: str, tell: Callable[[str], None]) -> Object:
    """A job that was half submitted, from now on this call's to release."""
    name = job["metadata"]["name"]
    tell(f"job {name!r} was half submitted; going on")
    for _ in range(TRIES):
        try:
            taken = api.patch(job, lifecycle.taken_over(call), version=job["metadata"]["resourceVersion"])
            return taken | {"kind": job["kind"]}
        except ConflictError:  # its controller has written its status, or somebody else goes on with it, too
            standing = _standing(api, manifest, user, replace=False)
            job = standing.job if standing else job
    raise ConflictError(f"job {name!r} is being submitted by somebody else", fix=f"kitctl status {name}")


def _replaced(api: Api, old: Object, manifest: Object, tell: Callable[[str], None]) -> Object:
    """The job, in place of one of its name."""
    tell(f"replacing job {old['metadata']['name']!r}: waiting until its pods have ended")
    api.delete(old)
    gone(api, old, facts.grace(old) + GONE_SECONDS)
    return _created(api, manifest)


def _check_claim(api: Api, child: Object, claimant: Claimant) -> None:
    """See that the claim, if this is one, can be taken up."""
    if child["kind"] in lifecycle.OUTLIVES:
        found = there(api, child)
        if found and "deletionTimestamp" not in found["metadata"]:
            claims.check(found, claimant)


def _attach(api: Api, child: Object, job: Object, claimant: Claimant) -> None:
    if child["kind"] in lifecycle.OUTLIVES:
        claims.attach(api, child, job, claimant)
        return
    for found in create_or_find(api, lifecycle.owned(runsecret.filled(child), job)):
        if lifecycle.leaving(found, job):
            gone(api, found)
        elif lifecycle.belongs(found, job):
            return
        else:
            raise another(found)


def _released(api: Api, job: Object, call: str, *, queued: bool) -> Object:
    """Release the job, if it is still the one that this call has prepared."""
    kind, name = job["kind"], job["metadata"]["name"]
    for _ in range(TRIES):
        try:
            return api.patch(job, lifecycle.release(kind, queued=queued), version=job["metadata"]["resourceVersion"])
        except (ConflictError, NotFound):  # its controller has written its status, as it often does just now
            now = api.find(kind, job["metadata"]["namespace"], name) or job
            if now["metadata"]["uid"] != job["metadata"]["uid"] or not lifecycle.held_by(now, call) or now is job:
                break
            job = now | {"kind": kind}
    fix = f"kitctl status {name} shows what is there"
    raise ConflictError(f"job {name!r} was deleted, or submitted by somebody else, meanwhile", fix=fix)


def _withdraw(api: Api, job: Object, call: str) -> None:
    """Delete the job that this call has created, unless another one goes on with it."""
    for _ in range(TRIES):
        now = api.get(job["kind"], job["metadata"]["namespace"], job["metadata"]["name"]) | {"kind": job["kind"]}
        if not lifecycle.held_by(now, call):
            return
        with suppress(ConflictError):  # its controller has written its status
            api.delete(now, version=now["metadata"]["resourceVersion"])
            return


def _previewed(api: Api, manifest: Object) -> Change:
    where = manifest["metadata"]
    live = api.find(manifest["kind"], where["namespace"], where["name"])
    try:
        return Change(before=live, after=api.preview(manifest))
    except KitError as error:
        if live is None and manifest["kind"] in rehearsal.LATER and isinstance(error, NotFound):
            return Change(before=None, after=manifest)
        if live is None:
            raise
        return Change(before=live, after=_merged(live, manifest), refusal=error.message)


def _merged(live: Object, manifest: Object) -> Object:
    """What would be there if the server allowed it; lists are replaced whole."""
    both = {key: _merged(live[key], manifest[key]) for key in manifest if _both_maps(live.get(key), manifest[key])}
    return live | manifest | both


def _both_maps(one: object, other: object) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)
