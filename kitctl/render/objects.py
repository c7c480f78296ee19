"""Render a ``JobSpec`` to Kubernetes objects. Pure: no cluster, no clock, no randomness.

What lives here: the steps spec -> values -> objects -> text. What never does: computing values (``template_values``),
filling templates (``templates``), and the form of the objects (``manifests/``, Jinja without logic).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kitctl.base import yamlstrict
from kitctl.code.code_tree import NO_SOURCES, Sources
from kitctl.render import overlay
from kitctl.render.template_values import TemplateValues, template_values
from kitctl.render.templates import fill
from kitctl.spec.job_spec import JobSpec

DEFAULT_NAMESPACE: Final = "default"  # of a job that is rendered without a cluster

# In creation order: what a job mounts, uses or is found by comes before the job.
TEMPLATES: Final = ("rbac", "secret", "configmaps", "snapshots", "service", "network-policy", "pod-group")


def manifests(
    spec: JobSpec,
    sources: Sources = NO_SOURCES,
    *,
    suspended: bool = False,
    standalone: bool = True,
    run: str = "",
    templates: Path | None = None,
) -> list[dict[str, Any]]:
    """The objects of a job, in the order in which to apply them.

    Args:
        spec: the job; its kind ``auto`` is the default one.
        sources: what is sent with it.
        suspended: whether the job waits to be unsuspended.
        standalone: whether they are applied without kitctl: pods then look up what submit would set.
        run: id of this run; empty: equal jobs are the same run.
        templates: a folder; its templates replace those of the same file name in ``manifests/``.

    Raises:
        SpecError: the job's ``pod`` sets what is set already, or its kind has no place for something.
        UsageError: a template of ``templates`` is wrong.
    """
    spec = spec.in_namespace(DEFAULT_NAMESPACE)
    values = template_values(spec, sources, suspended=suspended, standalone=standalone, run=run)
    folders = [folder for folder in (templates, values.kind.templates) if folder]
    *others, job = [document for template in _names(values) for document in fill(template, values, folders)]
    if added := overlay.of_spec(spec):
        pod = values.kind.pod_template(job)
        pod |= overlay.apply(pod, added)
    return [*others, values.kind.complete(job)]


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """A stream of YAML documents, every string quoted."""
    return yamlstrict.write(objects)


def to_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """One v1 List, as kubectl prints and reads it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"


def to_names(objects: Iterable[Mapping[str, Any]]) -> str:
    """One line per object, as ``kubectl -o name`` prints it: ``job.batch/digits``."""
    return "".join(f"{_resource(thing)}/{thing['metadata']['name']}\n" for thing in objects)


def _names(values: TemplateValues) -> tuple[str, ...]:
    return (*TEMPLATES, values.kind.template)


def _resource(thing: Mapping[str, Any]) -> str:
    group, slash, _ = thing["apiVersion"].rpartition("/")
    return f"{thing['kind'].lower()}{'.' if slash else ''}{group}"
