"""Accessors for rendered objects."""

from __future__ import annotations

import json
from typing import Any

from kitctl import kinds
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob import variables

Object = dict[str, Any]


def of_kind(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [thing for thing in objects if thing["kind"] == kind and name in {None, thing["metadata"]["name"]}]
    return found


def job_of(spec: JobSpec, *, suspended: bool = False) -> Object:
    return render.manifests(spec, suspended=suspended)[-1]


def pod_in(objects: list[Object]) -> Object:
    pod: Object = kinds.of_object(objects[-1]).pod_template(objects[-1])["spec"]
    return pod


def pod_of(spec: JobSpec) -> Object:
    return pod_in(render.manifests(spec))


def mounts_of(spec: JobSpec) -> dict[str, Object]:
    return {mount["name"]: mount for mount in pod_of(spec)["containers"][0]["volumeMounts"]}


def env_in(objects: list[Object]) -> dict[str, Any]:
    variables = pod_in(objects)["containers"][0]["env"]
    assert len({variable["name"] for variable in variables}) == len(variables)
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def env_of(spec: JobSpec) -> dict[str, Any]:
    return env_in(render.manifests(spec))


def document_in(objects: list[Object]) -> dict[str, Any]:
    """The value of ``KIT_SPEC`` in rendered pods, after Kubernetes' expansion."""
    document: dict[str, Any] = json.loads(env_in(objects)[variables.KIT_SPEC].replace("$$", "$"))
    return document


def document_of(spec: JobSpec) -> dict[str, Any]:
    return document_in(render.manifests(spec))
