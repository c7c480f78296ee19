"""Add-ons of the cluster: a ReadWriteMany storage class, a DNS domain, the controllers of kinds of job, and Kueue.

Each is applied with its upstream manifests, from the Go module that it was built from, and a small kustomization.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Final

from tests.cluster.kind.images import ADDONS_IMAGE, KINDS_IMAGE, KUEUE_IMAGE, pushed
from tests.cluster.kind.programs import source
from tests.cluster.kind.settings import HERE, SECOND_DOMAIN, STATE
from tests.cluster.kind.steps import eventually, read, run, works

DEPLOYMENTS: Final = (
    ("local-path-storage", "local-path-provisioner"),
    ("kubeflow", "training-operator"),
    ("jobset-system", "jobset-controller-manager"),
    ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    ("kueue-system", "kueue-controller-manager"),
)


def storage_class() -> None:
    """The default class ``shared``, ReadWriteMany: one folder, mounted on every node."""
    folder = _kustomization("local-path", "deploy")
    run("kubectl", "delete", "storageclass", "standard", "--ignore-not-found")  # kind's default: one folder per node
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def second_domain() -> None:
    """Serve Services under a second domain, too."""
    configmap = ("-n", "kube-system", "configmap", "coredns")
    corefile = read("kubectl", "get", *configmap, "-o", "jsonpath={.data.Corefile}")
    if SECOND_DOMAIN not in corefile:
        both = corefile.replace("cluster.local", f"cluster.local {SECOND_DOMAIN}")
        run("kubectl", "patch", *configmap, "-p", json.dumps({"data": {"Corefile": both}}))
        run("kubectl", "-n", "kube-system", "rollout", "restart", "deployment/coredns")


def training_operator() -> None:
    """Kubeflow's operator with PyTorchJob only: the other kinds' definitions would be five sixths of the manifests."""
    if works("kubectl", "-n", "kubeflow", "get", "deployment", "training-operator"):
        return  # applying again would remove its certificate from its Secret and webhook
    folder = _kustomization("training-operator", "manifests")
    definitions = folder / "upstream/base/crds/kustomization.yaml"
    definitions.write_text("resources: [kubeflow.org_pytorchjobs.yaml]\n", encoding="utf-8")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def kueue() -> None:
    """Kueue, for the jobs of namespaces that have its label: those of all others must not depend on it."""
    if works("kubectl", "-n", "kueue-system", "get", "deployment", "kueue-controller-manager"):
        return  # half of what its manifests take is one definition of 1.4 MB
    folder = _kustomization("kueue", "config", KUEUE_IMAGE)
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def pod_groups() -> None:
    """The definitions of PodGroups, for dry runs; no scheduler here reads them."""
    coscheduling = source("scheduler-plugins") / "manifests/coscheduling/crd.yaml"
    files = (coscheduling, HERE / "manifests/volcano-pod-group.yaml")
    run("kubectl", "apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in files))


def queue_positions() -> None:
    """Kueue's API for positions in a queue, once Kueue answers.

    The API server would keep a connection that it made earlier, to whatever has the Service's address elsewhere.
    """
    for file in sorted((source("kueue") / "config/components/visibility").glob("apiservice_*.yaml")):
        text = file.read_text(encoding="utf-8").replace("name: visibility-server", "name: kueue-visibility-server")
        run("kubectl", "apply", "-f", "-", given=text)


def jobset() -> None:
    """The JobSet controller. Its webhooks see JobSets and their pods only, so other jobs do not depend on it."""
    _once("jobset", "config", *DEPLOYMENTS[2])


def trainer() -> None:
    """Kubeflow Trainer, whose kind is TrainJob."""
    namespace, deployment = DEPLOYMENTS[3]
    if _once("trainer", "manifests", namespace, deployment):
        # It looks for its mounted certificate ever less often; a new pod finds the one that the first pod has made.
        secret = ("kubectl", "-n", namespace, "get", "secret", "kubeflow-trainer-webhook-cert")
        made = partial(read, *secret, "-o", "jsonpath={.data['tls\\.crt']}")
        eventually(lambda: bool(made()), seconds=120, what="Trainer's certificate")
        run("kubectl", "-n", namespace, "rollout", "restart", f"deployment/{deployment}")


def platform() -> None:
    """The kit's own chart for the team that owns a cluster: what TrainJobs refer to."""
    chart = HERE.parents[2] / "charts" / "platform"
    install = ("helm", "upgrade", "--install", "kit-platform", chart, "-n", "kitctl-system", "--create-namespace")
    if not works(*install, seconds=60):  # parts of a runtime are immutable
        run("helm", "uninstall", "kit-platform", "-n", "kitctl-system", "--wait", "--timeout=120s")
        run(*install)


def _once(name: str, upstream: str, namespace: str, deployment: str) -> bool:
    """Apply a controller's manifests unless it is there: again, they would remove its certificate."""
    if works("kubectl", "-n", namespace, "get", "deployment", deployment):
        return False
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", _kustomization(name, upstream, KINDS_IMAGE))
    return True


def _kustomization(name: str, upstream: str, image: str = ADDONS_IMAGE) -> Path:
    folder = STATE / "manifests" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source(name) / upstream, folder / "upstream", copy_function=shutil.copyfile)
    run("chmod", "-R", "u+w", folder)  # Go's module cache is read-only
    text = (HERE / "manifests" / f"{name}.yaml").read_text(encoding="utf-8")
    (folder / "kustomization.yaml").write_text(text.replace("ADDONS_IMAGE", pushed(image)), encoding="utf-8")
    return folder


def ready() -> None:
    """Wait for all of them."""
    for namespace, name in DEPLOYMENTS:
        run("kubectl", "-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=120s")
