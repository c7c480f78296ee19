"""Add-ons of the cluster: a ReadWriteMany storage class, a DNS domain, the controllers of kinds of job, and Kueue.

Each is applied with its upstream manifests, from the Go module that it was built from, and a small kustomization.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import textwrap
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.kind.images import CONTROLLERS_IMAGE, KUEUE_IMAGE, OPERATOR_IMAGE, pushed
from tests.cluster.kind.programs import source
from tests.cluster.kind.settings import CLUSTER, ENVIRON, HERE, SECOND_DOMAIN, STATE, TORCH_IMAGE
from tests.cluster.kind.steps import eventually, read, run, works

CONTROL_PLANE: Final = f"{CLUSTER}-control-plane"
VISIBILITY: Final = "kueue-visibility-server"
_UNIT: Final = "etc/systemd/system/volumes.service"
# Namespaces and names of deployments.
OPERATOR: Final = ("kubeflow", "training-operator")
JOBSET: Final = ("jobset-system", "jobset-controller-manager")
TRAINER: Final = ("kubeflow-system", "kubeflow-trainer-controller-manager")
KUEUE: Final = ("kueue-system", "kueue-controller-manager")
CONTROLLERS: Final = (JOBSET, TRAINER, KUEUE)
# Module -> the folder of its definitions. kitctl finds out which of them a cluster has.
DEFINITIONS: Final = {
    "jobset": "config/components/crd/bases",
    "trainer": "manifests/base/crds",
    "kueue": "config/components/crd/bases",
}


# Of each controller one kind that its webhooks see.
SEEN: Final = {
    "jobset.x-k8s.io/v1alpha2": "JobSet",
    "trainer.kubeflow.org/v1alpha1": "TrainJob",
    "kueue.x-k8s.io/v1beta2": "ClusterQueue",
}


class Certificate(NamedTuple):
    """The certificate of a controller's webhooks: its Secret, the name of its authority, and the webhooks' Service.

    A controller whose Secret is empty makes one, and then looks for it among its mounted files ever less often. Kubelet
    updates these within a minute or two, most of the time that creating the cluster would take.
    """

    secret_name: str
    authority: str
    service: str  # with its namespace

    def secret(self) -> str:
        """The Secret as a kustomization's patch."""
        script = (HERE / "certificate.sh").read_text(encoding="utf-8")
        name = f"{self.service}.svc"
        data = read("docker", "exec", CONTROL_PLANE, "sh", "-c", script, "sh", self.authority, name)  # it has openssl
        head = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: {self.secret_name}}}\ndata:\n"
        return head + textwrap.indent(data, "  ") + "\n"


def storage_class() -> None:
    """The default class ``shared``, ReadWriteMany: one folder, mounted on every node."""
    for name, content in {"usr/local/bin/volumes": HERE / "volumes.sh", _UNIT: HERE / "volumes.service"}.items():
        text = content.read_text(encoding="utf-8")
        run("docker", "exec", "-i", CONTROL_PLANE, "sh", "-ec", f"cat > /{name}", given=text)
    run("docker", "exec", CONTROL_PLANE, "sh", "-ec", "systemctl enable volumes; systemctl restart volumes")
    run("kubectl", "delete", "storageclass", "standard", "shared", "--ignore-not-found")  # kind has a default
    run("kubectl", "create", "-f", HERE / "manifests/storage.yaml")


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
    if _is_there(*OPERATOR):
        return  # see _once
    certificate = Certificate("training-operator-webhook-cert", "training-operator-ca", "training-operator.kubeflow")
    folder = _kustomization("training-operator", "manifests", certificate, OPERATOR_IMAGE)
    definitions = folder / "upstream/base/crds/kustomization.yaml"
    definitions.write_text("resources: [kubeflow.org_pytorchjobs.yaml]\n", encoding="utf-8")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def kueue() -> None:
    """Kueue, for the jobs of namespaces that have its label: those of all others must not depend on it."""
    certificate = Certificate("kueue-webhook-server-cert", "kueue-ca", "kueue-webhook-service.kueue-system")
    _once("kueue", "config", *KUEUE, certificate, KUEUE_IMAGE)  # half of that is one definition of 1.4 MB


def definitions() -> None:
    """Those of PodGroups, for dry runs, and those of controllers that are not there: jobs see the same API then.

    A controller that is there has applied its own, with its webhooks in them.
    """
    for name, (namespace, deployment) in zip(DEFINITIONS, CONTROLLERS, strict=True):
        if not _is_there(namespace, deployment):
            bases = sorted((source(name) / DEFINITIONS[name]).glob("*_*.yaml"))
            _apply(bases)
    coscheduling = source("scheduler-plugins") / "manifests/coscheduling/crd.yaml"
    _apply([coscheduling, HERE / "manifests/volcano-pod-group.yaml"])


def _apply(files: Iterable[Path]) -> None:
    run("kubectl", "apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in files))


def _is_there(namespace: str, deployment: str) -> bool:
    return works("kubectl", "-n", namespace, "get", "deployment", deployment)


def queue_positions() -> None:
    """Kueue's API for positions in a queue, once Kueue answers at its Service's address.

    The API server would keep a connection that it made earlier, to whatever has that address elsewhere.
    """
    address = read("kubectl", "-n", "kueue-system", "get", "service", VISIBILITY, "-o", "jsonpath={.spec.clusterIP}")
    kueue_answers = f'[ "$(curl -sk --max-time 5 https://{address}/healthz)" = ok ]'
    ask = ("docker", "exec", CONTROL_PLANE, "sh", "-c", kueue_answers)
    eventually(lambda: works(*ask), seconds=60, what=f"Kueue answers at {address}")
    files = sorted((source("kueue") / "config/components/visibility").glob("apiservice_*.yaml"))
    texts = "\n---\n".join(file.read_text(encoding="utf-8") for file in files)
    texts = texts.replace("name: visibility-server", f"name: {VISIBILITY}")
    run("kubectl", "apply", "-f", "-", given=texts)
    run("kubectl", "wait", "-f", "-", "--for=condition=Available", "--timeout=60s", given=texts)


def jobset() -> None:
    """The JobSet controller. Its webhooks see JobSets and their pods only, so other jobs do not depend on it."""
    certificate = Certificate("jobset-webhook-server-cert", "jobset-ca", "jobset-webhook-service.jobset-system")
    _once("jobset", "config", *JOBSET, certificate)


def trainer() -> None:
    """Kubeflow Trainer, whose kind is TrainJob."""
    namespace, deployment = TRAINER
    certificate = Certificate("kubeflow-trainer-webhook-cert", "kubeflow-trainer-ca", f"{deployment}.{namespace}")
    _once("trainer", "manifests", namespace, deployment, certificate)


def platform() -> None:
    """kitctl's own chart for the team that owns a cluster: what TrainJobs refer to, with an image of the platform's."""
    chart = HERE.parents[2] / "charts" / "platform"
    values = ("--set", f"defaults.image={pushed(TORCH_IMAGE)}")
    install = (
        "helm",
        "upgrade",
        "--install",
        "kit-platform",
        chart,
        "-n",
        "kitctl-system",
        "--create-namespace",
        *values,
    )
    if not works(*install, seconds=60):  # parts of a runtime are immutable
        run("helm", "uninstall", "kit-platform", "-n", "kitctl-system", "--wait", "--timeout=120s")
        run(*install)


def _once(
    name: str, upstream: str, namespace: str, deployment: str, certificate: Certificate, image: str = CONTROLLERS_IMAGE
) -> None:
    """Apply a controller's manifests, unless it is there: they would change its certificate, but not in its pod."""
    if not _is_there(namespace, deployment):
        folder = _kustomization(name, upstream, certificate, image)
        run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def _kustomization(name: str, upstream: str, certificate: Certificate, image: str) -> Path:
    folder = STATE / "manifests" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source(name) / upstream, folder / "upstream", copy_function=shutil.copyfile)
    run("chmod", "-R", "u+w", folder)  # Go's module cache is read-only
    text = (HERE / "manifests" / f"{name}.yaml").read_text(encoding="utf-8").replace("CONTROLLER_IMAGE", pushed(image))
    text += f"- {{path: certificate.yaml, target: {{kind: Secret, name: {certificate.secret_name}}}}}\n"
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    (folder / "certificate.yaml").write_text(certificate.secret(), encoding="utf-8")
    return folder


def ready(*deployments: tuple[str, str]) -> None:
    """Wait for deployments."""
    for namespace, name in deployments:
        run("kubectl", "-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=120s")


def webhooks() -> None:
    """Wait until the API server reaches the controllers' webhooks, which is later than their pods are ready."""
    for version, kind in SEEN.items():
        probe = {"apiVersion": version, "kind": kind, "metadata": {"name": "probe", "namespace": "default"}, "spec": {}}
        reached = partial(_is_seen, json.dumps(probe))
        eventually(reached, seconds=120, what=f"the API server reaches the webhook of {kind}")


def _is_seen(probe: str) -> bool:
    """Whether the webhooks of a kind were asked about an object, which they may refuse."""
    command = ("kubectl", "create", "--dry-run=server", "-f", "-")
    done = subprocess.run(command, check=False, env=ENVIRON, input=probe, capture_output=True, text=True)
    return done.returncode == 0 or "denied the request" in done.stderr or "is invalid" in done.stderr
