"""Defaults of a namespace that a job's pods would not get by themselves.

They have their own service account, so the default account's pull secrets do not apply. They state requests, so a
limit range's default requests do not apply. What this user may not read is left out.

An administrator sets the image of jobs that name none, and a mirror for images that name no registry, in a ConfigMap of
the namespace; the chart training-job reads it, too. Where that names no image, a TrainJob keeps its runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kitctl import kinds
from kitctl.base import names
from kitctl.base.errors import Forbidden
from kitctl.render.template_values import DEFAULT_REQUESTS
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.connection.api import Api
from kitjob.names import AUTO, DEFAULT_IMAGE
from kitjob.record import replace


def apply_namespace_defaults(api: Api, spec: JobSpec) -> JobSpec:
    """The job with the defaults of its namespace."""
    for part in (_image, _pull_secrets, _requests):
        with suppress(Forbidden):
            spec = part(api, spec)
    return spec


def remark(api: Api, asked: JobSpec, given: JobSpec) -> str:
    """What an administrator's defaults have made of a job's image; empty: nothing."""
    source = image_source(api, asked, given)
    return f"image: {given.image}, from {source}" if source else ""


def image_source(api: Api, asked: JobSpec, given: JobSpec) -> str:
    """The object that an administrator's image comes from; empty: it is the job's own, or kitctl's."""
    if given.image in {asked.image, DEFAULT_IMAGE}:
        return ""
    with suppress(Forbidden):
        if asked.image == AUTO and given.image == _runtimes_image(api, given):
            return f"the runtime {_runtime(given)}"
    return f"the ConfigMap {names.NAMESPACE_DEFAULTS} of namespace {given.namespace!r}"


def image(spec: JobSpec, defaults: Mapping[str, str]) -> str:
    """The image of a job in a namespace with these defaults: ``image``, ``mirror``."""
    wanted = defaults.get("image") or DEFAULT_IMAGE if spec.image == AUTO else spec.image
    host = wanted.partition("/")[0] if "/" in wanted else ""
    has_registry = "." in host or ":" in host or host == "localhost"  # as docker reads image names
    mirror = defaults.get("mirror", "").rstrip("/")
    return wanted if has_registry or not mirror else f"{mirror}/{wanted}"


def _image(api: Api, spec: JobSpec) -> JobSpec:
    """The administrator's image, mirror and pull secrets, where the job has none of its own."""
    found = api.find("ConfigMap", spec.namespace, names.NAMESPACE_DEFAULTS) or {}
    defaults = found.get("data") or {}
    secrets = spec.image_pull_secrets or tuple(defaults.get("imagePullSecrets", "").split())
    given = image(spec, defaults)
    if spec.image == AUTO and not defaults.get("image"):
        with suppress(Forbidden):
            given = _runtimes_image(api, spec) or given
    return replace(spec, image=given, image_pull_secrets=secrets)


def _runtimes_image(api: Api, spec: JobSpec) -> str:
    """The image of the runtime that a job of this kind refers to; empty: there is no such runtime, or it has none."""
    kind, name = kinds.of_spec(spec.kind), _runtime(spec)
    found = api.find(kind.prerequisite.resource, None, name) if kind.prerequisite and name else None
    return kind.runtimes_image(found) if found else ""


def _runtime(spec: JobSpec) -> str:
    return kinds.of_spec(spec.kind).runtime(elastic=spec.may_lack_nodes)


def _pull_secrets(api: Api, spec: JobSpec) -> JobSpec:
    """Adds the default account's pull secrets, if the job has its own account and names none."""
    if spec.image_pull_secrets or spec.security.service_account or not spec.security.report_status:
        return spec
    account = api.find("ServiceAccount", spec.namespace, "default") or {}
    return replace(spec, image_pull_secrets=tuple(one["name"] for one in account.get("imagePullSecrets") or ()))


def _requests(api: Api, spec: JobSpec) -> JobSpec:
    """Takes a limit range's default requests instead of kitctl's, which might exceed its default limit."""
    ranges = api.select("LimitRange", spec.namespace)
    items = [item for one in ranges for item in one["spec"].get("limits") or () if item.get("type") == "Container"]
    own = spec.resources.requests.keys() | spec.resources.limits.keys()
    found = {
        name: amount
        for item in items
        for name, amount in (item.get("defaultRequest") or {}).items()
        if name in DEFAULT_REQUESTS.keys() - own
    }
    if not found:
        return spec
    return replace(spec, resources=replace(spec.resources, requests={**found, **spec.resources.requests}))
