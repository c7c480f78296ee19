"""Defaults of a namespace that a job's pods would not get by themselves.

They have their own service account, so the default account's pull secrets do not apply. They state requests, so a
limit range's default requests do not apply. What this user may not read is left out.
"""

from __future__ import annotations

from contextlib import suppress

from kitctl.base.errors import Forbidden
from kitctl.render.template_values import DEFAULT_REQUESTS
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.connection.api import Api
from kitjob.record import replace


def apply_namespace_defaults(api: Api, spec: JobSpec) -> JobSpec:
    """The job with the defaults of its namespace."""
    for part in (_pull_secrets, _requests):
        with suppress(Forbidden):
            spec = part(api, spec)
    return spec


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
