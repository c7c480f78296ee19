"""What is added to the cluster: a ReadWriteMany storage class, a DNS domain, and Kubeflow's training operator.

The programs come with their upstreams' own manifests, taken from the Go modules that they were built from, under a
small kustomization.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster.kind.images import ADDONS_IMAGE, pushed
from tests.cluster.kind.programs import source
from tests.cluster.kind.settings import HERE, SECOND_DOMAIN, STATE
from tests.cluster.kind.steps import read, run, works


def storage_class() -> None:
    """The class ``shared``, ReadWriteMany, the cluster's default: one folder that every node sees."""
    folder = _kustomization("local-path", "deploy")
    run("kubectl", "delete", "storageclass", "standard", "--ignore-not-found")  # kind's own: one folder a node
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def second_domain() -> None:
    """Services have names under a second domain, too."""
    configmap = ("-n", "kube-system", "configmap", "coredns")
    corefile = read("kubectl", "get", *configmap, "-o", "jsonpath={.data.Corefile}")
    if SECOND_DOMAIN not in corefile:
        both = corefile.replace("cluster.local", f"cluster.local {SECOND_DOMAIN}")
        run("kubectl", "patch", *configmap, "-p", json.dumps({"data": {"Corefile": both}}))
        run("kubectl", "-n", "kube-system", "rollout", "restart", "deployment/coredns")


def training_operator() -> None:
    """PyTorchJob, and none of the operator's other kinds: their definitions would be five sixths of it."""
    if works("kubectl", "-n", "kubeflow", "get", "deployment", "training-operator"):
        return  # it has written its certificate into its Secret and webhook: applying would take that back
    folder = _kustomization("training-operator", "manifests")
    definitions = folder / "upstream/base/crds/kustomization.yaml"
    definitions.write_text("resources: [kubeflow.org_pytorchjobs.yaml]\n", encoding="utf-8")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def _kustomization(name: str, upstream: str) -> Path:
    folder = STATE / "manifests" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source(name) / upstream, folder / "upstream", copy_function=shutil.copyfile)
    run("chmod", "-R", "u+w", folder)  # Go's module cache is read-only
    text = (HERE / "manifests" / f"{name}.yaml").read_text(encoding="utf-8")
    (folder / "kustomization.yaml").write_text(text.replace("ADDONS_IMAGE", pushed(ADDONS_IMAGE)), encoding="utf-8")
    return folder


def ready() -> None:
    """Wait for both."""
    for namespace, name in (("local-path-storage", "local-path-provisioner"), ("kubeflow", "training-operator")):
        run("kubectl", "-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=120s")
