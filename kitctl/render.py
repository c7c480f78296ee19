"""Render a ``JobSpec`` to Kubernetes objects. Pure: no cluster, no clock, no randomness.

What lives here: the steps spec -> view -> templates -> YAML -> objects -> text. What never does: computing values
(``podview``), and the form of the objects (``manifests/``, Jinja without logic).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kitctl import yamlstrict
from kitctl.podview import View, view
from kitctl.spec import JobSpec

if TYPE_CHECKING:
    import jinja2

# In creation order: what a job mounts, uses or is found by comes before the job.
TEMPLATES: Final = ("rbac", "secret", "configmaps", "snapshots", "service", "network-policy")


def manifests(
    spec: JobSpec,
    sources: Mapping[str, str] | None = None,
    *,
    suspended: bool = False,
    standalone: bool = True,
    run: str = "",
) -> list[dict[str, Any]]:
    """The objects of a job, in the order in which to apply them.

    Args:
        spec: the job; its kind ``auto`` is the default one.
        sources: files that are sent with it, text by relative path.
        suspended: whether the job waits to be unsuspended.
        standalone: whether they are applied without kitctl: pods then look up what submit would set.
        run: id of this run; empty: equal jobs are the same run.
    """
    shown = view(spec, sources or {}, suspended=suspended, standalone=standalone, run=run)
    return [document for template in _templates(shown) for document in yamlstrict.parse(_filled(template, shown))]


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """A stream of YAML documents, every string quoted."""
    return yamlstrict.write(objects)


def to_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """One v1 List, as kubectl prints and reads it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"


def to_names(objects: Iterable[Mapping[str, Any]]) -> str:
    """One line per object, as ``kubectl -o name`` prints it: ``job.batch/digits``."""
    return "".join(f"{_resource(thing)}/{thing['metadata']['name']}\n" for thing in objects)


def _templates(shown: View) -> tuple[str, ...]:
    return (*TEMPLATES, shown.kind.template)


def _filled(template: str, shown: View) -> str:
    text: str = _environment().get_template(f"{template}.yaml.j2").render(job=shown)
    return text


def _resource(thing: Mapping[str, Any]) -> str:
    group, slash, _ = thing["apiVersion"].rpartition("/")
    return f"{thing['kind'].lower()}{'.' if slash else ''}{group}"


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - half of the time that `kitctl render` takes

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folder()),
        undefined=jinja2.StrictUndefined,
        finalize=yamlstrict.quote,  # every {{ value }} is written as JSON, so no value can change the structure
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - YAML, not HTML
    )


def _folder() -> Path:
    """``manifests/``: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "manifests"
    return installed if installed.is_dir() else package.parent / "manifests"
