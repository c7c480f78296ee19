"""A real API server accepts the recipes of docs/fabrics.md, and pods with additions run and train."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.kinds import KINDS, of_object
from kitctl.render import objects as render
from tests.cluster.commands import job, kitctl
from tests.cluster.kind.settings import ENVIRON
from tests.cluster.kubectl import Object, get, kubectl
from tests.recipes import LEVEL, LEVELS, RECIPES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
PRIVILEGED = "pod-security.kubernetes.io/enforce=privileged"
OVERLAY = """\
labels: {team: vision}
initContainers:
  - &quiet
    name: prepare
    image: IMAGE
    command: [sh, -c, "echo prepared > /prepared/flag"]
    volumeMounts: [{name: prepared, mountPath: /prepared}]
    securityContext: &restricted
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
sidecars:
  - name: companion
    image: IMAGE
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"]
    securityContext: *restricted
spec:
  volumes: [{name: prepared, emptyDir: {}}]
  containers:
    - name: pytorch
      volumeMounts: [{name: prepared, mountPath: /prepared}]
      env: [{name: GREETING, value: hello}]
"""


@pytest.mark.controllers
def test_the_server_accepts_each_recipe(namespace: str) -> None:
    kubectl("label", "--overwrite", "namespace", namespace, PRIVILEGED)
    for name, recipe in RECIPES.items():
        for kind in KINDS.keys() - {"TrainJob"}:  # its pods are the runtime's
            objects = objects_of(recipe, name, kind, namespace)
            both = render.to_json([*objects, pod_of(objects[-1], name)])
            apply = ("apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
            assert len(kubectl(*apply, given=both).splitlines()) == len(objects) + 1


def test_the_strictest_level_that_admits_each_recipe_is_that_of_the_table(namespace: str) -> None:
    pods = [pod_of(objects_of(recipe, name, "IndexedJob", namespace)[-1], name) for name, recipe in RECIPES.items()]
    strictest: dict[str, str] = {}
    for level in LEVELS:
        kubectl("label", "--overwrite", "namespace", namespace, f"pod-security.kubernetes.io/enforce={level}")
        create = ["kubectl", "create", "--dry-run=server", "-o", "name", "-f", "-"]
        done = subprocess.run(
            create, check=False, env=ENVIRON, input=render.to_json(pods), capture_output=True, text=True
        )
        for name in done.stdout.split():
            strictest.setdefault(name.removeprefix("pod/"), level)
    assert strictest == LEVEL


def objects_of(recipe: str, name: str, kind: str, namespace: str) -> list[Object]:
    given = {"name": name, "kind": kind, "namespace": namespace, **yaml.safe_load(recipe)}
    return render.manifests(specfile.build(JobRequest(flags=given)))


def pod_of(made: Object, name: str) -> Object:
    """A pod of a job, for the namespace's default ServiceAccount."""
    template = of_object(made).pod_template(made)
    metadata = template["metadata"] | {"name": name, "namespace": made["metadata"]["namespace"]}
    spec = template["spec"] | {"serviceAccountName": "default", "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.wide
def test_a_pod_with_additions_trains_to_the_end(namespace: str, tmp_path: Path) -> None:
    image = job("run", namespace)[-1]
    (tmp_path / "pod.yaml").write_text(OVERLAY.replace("IMAGE", image))
    (tmp_path / "train.py").write_text(
        "import os, pathlib\nprint(os.environ['GREETING'], pathlib.Path('/prepared/flag').read_text())\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        options = ("--pod-overlay", "pod.yaml", "--set", "snapshots.enabled=false", "--wait", "--", "train.py")
        output = kitctl("submit", *job("run", namespace), *options)
    assert "run: Succeeded" in output
    assert "[rank 0]: hello prepared" in kitctl("logs", "run", "-n", namespace)
    (pod,) = get(namespace, "pods", "-l", "team=vision")["items"]
    assert pod["status"]["phase"] == "Succeeded", "its sidecar has ended with the ranks"
