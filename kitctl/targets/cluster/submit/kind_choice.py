"""Which kind of job ``kind: auto`` becomes, and whether the cluster has what a kind needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kitctl import kinds
from kitctl.base.errors import Forbidden, KitError, NotFound, UnsupportedError, UsageError
from kitctl.kinds import JobKind
from kitctl.kinds.job_kind import Prerequisite
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.permissions import Permissions
from kitjob.record import replace

NOT_INSTALLED: Final = "{} is not installed"


def choose(api: Api, spec: JobSpec, allowed: Permissions, warn: Callable[[str], None]) -> JobSpec:
    """The job with a kind for ``auto``: the default one, else the first that this user may create and that works.

    A kind works if the API server accepts such a job in a dry run, for which its controller's webhook has to answer.
    Says which kind it is, and why, if it is not the default one.
    """
    if spec.kind != kinds.AUTO:
        return spec
    if allowed.may_apply(kinds.DEFAULT.key):
        return replace(spec, kind=kinds.DEFAULT.name)
    why = [f"you may not create {kinds.DEFAULT.resource}s in namespace {spec.namespace!r}"]
    for kind in kinds.all_kinds().values():
        if kind is kinds.DEFAULT:
            continue
        if obstacle := _obstacle(api, spec, kind, allowed):
            why.append(f"{kind.name} cannot be used: {obstacle}")
            continue
        warn(f"kind: {kind.name}, since {'; '.join(why)}{f'; {kind.legacy}' if kind.legacy else ''}")
        return replace(spec, kind=kind.name)
    return replace(spec, kind=kinds.DEFAULT.name)  # the API server then says what is missing


def check(api: Api, kind: JobKind) -> None:
    """Refuse a kind that the cluster lacks, or has in another version, or whose prerequisite it lacks.

    Raises:
        UnsupportedError: its controller is not installed, or only in other versions.
        UsageError: its prerequisite is missing, is not kitctl's, or has another version, as far as this user may look.
    """
    if kind.operator:
        _check_version(api, kind)
    if kind.prerequisite:
        _check_prerequisite(api, kind, kind.prerequisite)


def _check_version(api: Api, kind: JobKind) -> None:
    served, version = api.versions(kind.key), kind.api_version.rpartition("/")[2]
    if version not in served:
        what = f"kind: the cluster serves {kind.resource}s as {', '.join(served)}, and kitctl knows {version}"
        fix = f"install a version of {kind.operator} that serves it, or use --kind {kinds.DEFAULT.name}"
        raise UnsupportedError(what, fix=fix)


def _check_prerequisite(api: Api, kind: JobKind, needed: Prerequisite) -> None:
    with suppress(Forbidden):
        what = f"kind: a {kind.resource} needs the {needed.resource} {needed.name!r}"
        try:
            found = api.get(needed.resource, None, needed.name)
        except NotFound as error:
            raise UsageError(f"{what}, which this cluster does not have", fix=needed.fix) from error
        version = found["metadata"].get("labels", {}).get(needed.label)
        if version is None:
            raise UsageError(f"{what} of kitctl, and that one is not kitctl's", fix=needed.fix)
        if version != needed.version:
            what += f" in version {needed.version}, and that one has version {version}"
            raise UsageError(what, fix="use kitctl and charts/platform of one release")


def _obstacle(api: Api, spec: JobSpec, kind: JobKind, allowed: Permissions) -> str:
    """Why a kind cannot be used; empty: it can."""
    if not allowed.may_apply(kind.key):
        return "you may not create it"
    try:
        check(api, kind)
        api.create(render.manifests(replace(spec, kind=kind.name), suspended=True)[-1], dry_run=True)
    except UnsupportedError:
        return NOT_INSTALLED.format(kind.operator)
    except KitError as error:
        return error.message
    return ""
