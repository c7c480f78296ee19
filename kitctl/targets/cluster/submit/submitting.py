"""Submitting a job: it is created suspended, its children are created, then it is released.

After a crash between any two requests, the same call again continues where the first one stopped. If a child is
refused, the job is deleted again. If two calls submit one name at once, one creates the job and the other one fails.

Why: decision 8.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from kitctl import kinds
from kitctl.base import names
from kitctl.base.errors import ConflictError, Forbidden, KitError, NotFound, UnsupportedError, UsageError
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitctl.targets import Change, Submission, mirrors, plain_scripts
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object, key_of
from kitctl.targets.cluster.queue import kueue, queue_checks, quota
from kitctl.targets.cluster.read import job_facts, lifecycle
from kitctl.targets.cluster.read.existing import (
    DELETE_SECONDS,
    TRIES,
    create_once,
    create_or_find,
    find_existing,
    name_conflict,
    wait_deleted,
)
from kitctl.targets.cluster.read.finding import lookup
from kitctl.targets.cluster.submit import (
    claims,
    code_sending,
    dry_run,
    namespace_defaults,
    preflight,
    run_secret,
    trainer_sending,
)
from kitctl.targets.cluster.submit.claims import Claimant
from kitctl.targets.conflicts import already_exists


class ExistingJob(NamedTuple):
    """A job of the name; ``partial`` if an earlier call of submit was interrupted before its release."""

    job: Object
    partial: bool


class Plan(NamedTuple):
    """What a call of submit has found and will do: nothing is created yet; ``call`` is its id."""

    spec: JobSpec
    children: list[Object]
    manifest: Object
    existing: ExistingJob | None
    claimant: Claimant
    call: str


def submit(api: Api, submission: Submission, user: str, warn: Callable[[str], None]) -> Object:
    """Submit a job; returns its object.

    Raises:
        ConflictError: a job of that name exists, or an object that it needs belongs to something else.
        UsageError: the cluster could never run it.
    """
    spec, children, manifest, existing, claimant, call = _plan(api, submission, user, warn)
    if existing is None:
        job = _create(api, lifecycle.outside_queue(manifest))
    elif existing.partial:
        job = _take_over(api, existing.job, manifest, call, user, warn)
    else:
        for child in children:  # even without checks: the deleted job cannot be restored
            _check_claim(api, child, claimant)
        job = _replace(api, existing.job, lifecycle.outside_queue(manifest), warn)
    try:
        _apply_children(api, children, job, claimant)
        code_sending.send(api, job, submission.sources.folders, warn)
        return _release(api, job, call, spec.scheduling.queue or kueue.queue_of(job))  # Kueue may have a default one
    except KitError:
        if not (existing and existing.partial):
            with suppress(KitError):  # report the first error; the next submit finds the remains
                _withdraw(api, job, call)
        raise


def check(api: Api, submission: Submission, user: str, warn: Callable[[str], None]) -> None:
    """Refuse what ``submit`` would refuse before it creates anything; raises as it does, and changes nothing."""
    _plan(api, submission, user, warn)


def _plan(api: Api, submission: Submission, user: str, warn: Callable[[str], None]) -> Plan:
    spec = preflight.adapt(api, submission.spec, warn)
    if remark := namespace_defaults.remark(api, submission.spec, spec):
        warn(remark)
    for one in submission.sources.folders:
        code_sending.check(api, spec, one)
    call = uuid.uuid4().hex
    *children, manifest = render.manifests(
        spec, submission.sources, suspended=True, standalone=False, run=call[:8], templates=submission.templates
    )
    manifest = lifecycle.mark_pending(manifest, call, user)
    existing = _find_existing_job(api, manifest, user, replace=submission.replace)
    claimant = Claimant(user, bool(spec.resume))
    if submission.checks:
        unsafe = plain_scripts.check(submission)
        preflight.check(api, spec)
        for remark in (*unsafe, *_remarks(api, spec, manifest), *mirrors.warnings_from_afar(spec)):
            warn(remark)
        own = [child for child in children if not trainer_sending.is_shared(child)]
        dry_run.dry_run_objects(api, [*own, manifest], claimant, replaces=existing is not None)
        _check_pod(api, spec, manifest, warn)
    return Plan(spec, children, manifest, existing, claimant, call)


def preview(api: Api, submission: Submission, warn: Callable[[str], None]) -> list[Change]:
    """What submitting would change, object by object, according to the API server's dry run."""
    spec = preflight.adapt(api, submission.spec, warn)
    job = lookup(api, spec.namespace, spec.name, kinds.of_spec(spec.kind))
    run = kinds.of_object(job).run_id(job) if job else ""
    applied = job is not None and not lifecycle.is_submitted(job)  # a manifest of kitctl render
    objects = render.manifests(spec, submission.sources, standalone=applied, run=run, templates=submission.templates)
    owner = None if applied else job
    own = [lifecycle.with_owner_reference(one, owner) if owner and one is not objects[-1] else one for one in objects]
    return [code_sending.shorten(run_secret.mask(_preview_object(api, one))) for one in own]


def _remarks(api: Api, spec: JobSpec, manifest: Object) -> Iterator[str]:
    """What the user should know of the job's nodes and of its queue, which may refuse it."""
    pod = quota.pod_requests(kinds.of_spec(spec.kind).pod_template(manifest))
    if remark := preflight.remark(api, spec, pod):
        yield remark
    if spec.scheduling.queue:
        yield from queue_checks.check(api, spec, manifest)


def _check_pod(api: Api, spec: JobSpec, manifest: Object, warn: Callable[[str], None]) -> None:
    """Refuse a job whose pods the cluster would never admit; pods that exceed a quota only now may wait."""
    try:
        with suppress(Forbidden, UnsupportedError):  # not known, then
            dry_run.dry_run_pod(api, spec, manifest)
    except UsageError as error:
        if dry_run.QUOTA_EXCEEDED not in error.message:
            raise
        warn(f"its pods wait until there is room for them: {error.message}")


def _find_existing_job(api: Api, manifest: Object, user: str, *, replace: bool) -> ExistingJob | None:
    """The job of that name, if it may be continued or replaced; None if there is none."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    job = lookup(api, namespace, name)
    if job is None:
        return None
    digest = lifecycle.annotations_of(manifest).get(names.ANNOTATION_SPEC_HASH, "")
    same = key_of(job) == key_of(manifest) and _launch(job) == _launch(manifest)  # the job's pods have its own trainer
    if same and lifecycle.is_partial_submit(job, digest, user):
        return ExistingJob(job, partial=True)
    if not lifecycle.is_kitctl_object(job):
        what = f"name: {job['kind']} {name!r} already exists and is not managed by kitctl"
        raise ConflictError(what, fix="choose another --name")
    if not replace:
        raise already_exists(name)
    return ExistingJob(job, partial=False)


def _launch(job: Object) -> list[str]:
    return job_facts.python(job_facts.pod_template(job))


def _create(api: Api, manifest: Object) -> Object:
    """Create the job."""
    where = manifest["metadata"]
    try:
        return create_once(api, manifest)
    except ConflictError as error:
        if api.find(key_of(manifest), where["namespace"], where["name"]) is None:
            raise
        raise already_exists(where["name"]) from error  # another call was faster


def _take_over(api: Api, job: Object, manifest: Object, call: str, user: str, warn: Callable[[str], None]) -> Object:
    """Take over a partially submitted job: from now on this call may release it."""
    name = job["metadata"]["name"]
    warn(f"job {name!r} was partially submitted; continuing")
    for _ in range(TRIES):
        try:
            return api.patch(job, lifecycle.take_over(call), version=job["metadata"]["resourceVersion"])
        except ConflictError:  # its controller has written its status, or another call takes it over as well
            existing = _find_existing_job(api, manifest, user, replace=False)
            job = existing.job if existing else job
    raise ConflictError(f"job {name!r} is being submitted by another client", fix=f"kitctl status {name}")


def _replace(api: Api, old: Object, manifest: Object, warn: Callable[[str], None]) -> Object:
    """Delete the job of that name, and create the new one."""
    warn(f"replacing job {old['metadata']['name']!r}: waiting until its pods have ended")
    if fate := job_facts.fate_of_outputs(old):
        warn(fate)
    api.delete(old)
    wait_deleted(api, old, job_facts.grace_seconds(old) + DELETE_SECONDS)
    return _create(api, manifest)


def _check_claim(api: Api, child: Object, claimant: Claimant) -> None:
    """Check that the claim, if the child is one, may be used."""
    if child["kind"] in lifecycle.OUTLIVES_JOB:
        found = find_existing(api, child)
        if found and "deletionTimestamp" not in found["metadata"]:
            claims.check(found, claimant)


def _apply_children(api: Api, children: Iterable[Object], job: Object, claimant: Claimant) -> None:
    """Create what the job needs; the claim, which outlives it, last: if another one is refused, nothing stays."""
    for child in sorted(children, key=lambda one: one["kind"] in lifecycle.OUTLIVES_JOB):
        _apply_child(api, child, job, claimant)


def _apply_child(api: Api, child: Object, job: Object, claimant: Claimant) -> None:
    if child["kind"] in lifecycle.OUTLIVES_JOB:
        claims.attach(api, child, job, claimant)
        return
    if trainer_sending.is_shared(child):
        trainer_sending.attach(api, child, job)
        return
    for found in create_or_find(api, lifecycle.with_owner_reference(run_secret.fill(child), job)):
        if lifecycle.is_terminating(found, job):
            wait_deleted(api, found)
        elif lifecycle.is_owned_by(found, job):
            return
        else:
            raise name_conflict(found)


def _release(api: Api, job: Object, call: str, queue: str) -> Object:
    """Release the job, if this call still holds it."""
    name = job["metadata"]["name"]
    for _ in range(TRIES):
        try:
            return api.patch(job, lifecycle.release(job, queue), version=job["metadata"]["resourceVersion"])
        except (ConflictError, NotFound):  # its controller has written its status, as it often does at this moment
            now = api.find(key_of(job), job["metadata"]["namespace"], name) or job
            if now["metadata"]["uid"] != job["metadata"]["uid"] or not lifecycle.is_held_by(now, call) or now is job:
                break
            job = now
    fix = f"kitctl status {name} shows its state"
    raise ConflictError(f"job {name!r} was deleted or submitted by another client in the meantime", fix=fix)


def _withdraw(api: Api, job: Object, call: str) -> None:
    """Delete the job that this call created, unless another call has taken it over."""
    for _ in range(TRIES):
        now = api.get(key_of(job), job["metadata"]["namespace"], job["metadata"]["name"])
        if not lifecycle.is_held_by(now, call):
            return
        with suppress(ConflictError):  # its controller has written its status
            api.delete(now, version=now["metadata"]["resourceVersion"])
            return


def _preview_object(api: Api, manifest: Object) -> Change:
    """What applying it would change in one version of the object: what a controller writes meanwhile is no change."""
    for _ in range(TRIES):
        live = _find_live(api, manifest)
        with suppress(ConflictError):
            return _compare(api, manifest, live, live["metadata"]["resourceVersion"] if live else "")
    return _compare(api, manifest, _find_live(api, manifest), "")


def _find_live(api: Api, manifest: Object) -> Object | None:
    where = manifest["metadata"]
    return api.find(key_of(manifest), where["namespace"], where["name"])


def _compare(api: Api, manifest: Object, live: Object | None, version: str) -> Change:
    try:
        return Change(before=live, after=api.preview(manifest, version=version))
    except ConflictError:
        raise
    except KitError as error:
        if live is None and manifest["kind"] in dry_run.NEEDS_OTHERS and isinstance(error, NotFound):
            return Change(before=None, after=manifest)
        if live is None:
            raise
        return Change(before=live, after=_merge(live, _defaulted(api, manifest, live)), refusal=error.message)


def _defaulted(api: Api, manifest: Object, live: Object) -> Object:
    """The manifest with the server's defaults, as if it were created beside the object that is there; else as it is."""
    where = manifest["metadata"]
    beside = manifest | {"metadata": where | {"name": f"diff-{uuid.uuid4().hex[:16]}"}}
    try:
        stored = api.create(beside, dry_run=True)
    except KitError:
        return manifest
    return lifecycle.identified(stored | {"metadata": where}, live)


def _merge(live: Object, manifest: Object) -> Object:
    """The object if the server allowed the change; lists are replaced whole."""
    both = {key: _merge(live[key], manifest[key]) for key in manifest if _are_dicts(live.get(key), manifest[key])}
    return live | manifest | both


def _are_dicts(one: object, other: object) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)
