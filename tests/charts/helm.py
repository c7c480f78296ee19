"""Manifests of a job rendered by helm and by kitctl, and the differences that are allowed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kitctl import kinds
from kitctl.base import names
from kitctl.code import trainer_package
from kitctl.code.code_tree import NO_SOURCES, Sources
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob import variables
from tests import fast_yaml
from tests.cluster.kind.settings import SHORT_COMMANDS

Object = dict[str, Any]

CHART: Final = Path(__file__).parents[2] / "charts" / "training-job"
PLATFORM: Final = CHART.parent / "platform"
HELM: Final = shutil.which("helm", path=SHORT_COMMANDS["PATH"])
KUBERNETES: Final = "1.31"  # passed to helm: one built without its release's linker flags assumes an older version
TEMPLATE: Final = ("template", "--no-hooks", "--kube-version", KUBERNETES)


def helm(*arguments: str, given: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm; ``given`` is its standard input."""
    command = [HELM or "helm", *arguments]
    text = json.dumps(given, ensure_ascii=False)
    return subprocess.run(command, check=False, env=SHORT_COMMANDS, input=text, capture_output=True, text=True)


def rendered(*arguments: str, release: str = "job", given: Mapping[str, Any] | None = None) -> list[Object]:
    """The objects of a release, without its test."""
    done = helm(*TEMPLATE, release, str(CHART), "-f", "-", *arguments, given=given or {})
    assert done.returncode == 0, done.stderr
    return [document for document in fast_yaml.load_all(done.stdout) if document]


def notes_of(chart: Path, folder: Path) -> Callable[[Mapping[str, Any]], str]:
    """A function that returns what helm tells after it has installed a chart, given its values, without line breaks."""
    copied = shutil.copytree(chart, folder / chart.name)
    text = (copied / "templates" / "NOTES.txt").read_text("utf-8")  # helm template does not show it
    shown = 'kind: ConfigMap\nmetadata: {name: notes}\ndata: {notes: {{ include "notes" . | toJson }}}\n'
    (copied / "templates" / "notes.yaml").write_text(f'{{{{ define "notes" }}}}{text}{{{{ end }}}}{shown}', "utf-8")

    def notes(given: Mapping[str, Any]) -> str:
        done = helm(*TEMPLATE, "kit", str(copied), "-f", "-", "-s", "templates/notes.yaml", given=given)
        assert done.returncode == 0, done.stderr
        (found,) = fast_yaml.load_all(done.stdout)
        return " ".join(found["data"]["notes"].split())

    return notes


def refusal(given: Mapping[str, Any], *arguments: str, release: str = "job") -> list[str]:
    """The lines of helm's error message."""
    done = helm(*TEMPLATE, release, str(CHART), "-f", "-", *arguments, given=given)
    assert done.returncode != 0, done.stdout
    return done.stderr.splitlines()


def manifests(spec: JobSpec, sources: Sources = NO_SOURCES) -> list[Object]:
    """What kitctl renders, with its trainer, as the chart has."""
    sent = None if spec.trainer == "image" else trainer_package.load()
    return render.manifests(spec, msgspec.structs.replace(sources, trainer=sent))


# -- allowed differences: docs/helm.md has the same list --------------------------------------------------------------


def _managed_by(thing: Object) -> None:
    for labels in _all_labels(thing):
        labels.pop(names.LABEL_MANAGED_BY, None)


def _digests(thing: Object) -> None:
    for annotation in (names.ANNOTATION_SPEC_HASH, "kitctl.dev/pod-digest"):
        _drop_annotation(thing, annotation)


def _resource_policy(thing: Object) -> None:
    _drop_annotation(thing, "helm.sh/resource-policy")


def _rendezvous_id(thing: Object) -> None:
    thing.get("spec", {}).get("elasticPolicy", {}).pop("rdzvId", None)


def _order_of_env(thing: Object) -> None:
    for template in _pod_templates(thing):
        env = template["spec"]["containers"][0]["env"]
        env.sort(key=lambda variable: variable["name"])
        for variable in env:
            if variable["name"] == variables.KIT_SPEC and isinstance(variable["value"], str):
                variable["value"] = json.loads(variable["value"].replace("$$", "$"))


DIFFERENCES: Final[Mapping[str, Callable[[Object], None]]] = {
    "the label `app.kubernetes.io/managed-by`": _managed_by,
    "the annotations `kitctl.dev/spec-hash` and `kitctl.dev/pod-digest`": _digests,
    "the annotation `helm.sh/resource-policy`": _resource_policy,
    "`rdzvId` of a PyTorchJob": _rendezvous_id,
    "the order of objects, of variables and of the fields in `KIT_SPEC`": _order_of_env,
}


def alike(objects: Iterable[Object], *, but_for: Iterable[str] = DIFFERENCES) -> dict[str, Object]:
    """Objects by kind and name, without the allowed differences. Modifies the objects."""
    found = {f"{thing['kind']} {thing['metadata']['name']}": thing for thing in objects}
    for thing in found.values():
        for difference in but_for:
            DIFFERENCES[difference](thing)
    return found


def _all_labels(thing: Object) -> list[dict[str, str]]:
    return [part["metadata"]["labels"] for part in (thing, *_pod_templates(thing))]


def _pod_templates(thing: Object) -> list[Object]:
    kind = kinds.of_key(f"{thing['kind']}.{thing['apiVersion'].rpartition('/')[0]}")
    return [kind.pod_template(thing)] if kind else []


def _drop_annotation(thing: Object, annotation: str) -> None:
    annotations = thing["metadata"].pop("annotations", {})
    annotations.pop(annotation, None)
    if annotations:
        thing["metadata"]["annotations"] = annotations
