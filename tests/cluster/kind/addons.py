"""Add-ons of the cluster: a ReadWriteMany storage class, a DNS domain, the controllers of kinds of job, and Kueue.

Each is applied with its upstream manifests, from the Go module that it was built from, and a small kustomization.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.kind.images import KINDS_IMAGE, KUEUE_IMAGE, pushed
from tests.cluster.kind.programs import source
from tests.cluster.kind.settings import CLUSTER, HERE, SECOND_DOMAIN, STATE
from tests.cluster.kind.steps import eventually, read, run, works

CONTROL_PLANE: Final = f"{CLUSTER}-control-plane"
VISIBILITY: Final = "kueue-visibility-server"
_UNIT: Final = "etc/systemd/system/volumes.service"
DEPLOYMENTS: Final = (
    ("kubeflow", "training-operator"),
    ("jobset-system", "jobset-controller-manager"),
    ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    ("kueue-system", "kueue-controller-manager"),
)


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
    if works("kubectl", "-n", "kubeflow", "get", "deployment", "training-operator"):
        return  # see _once
    certificate = Certificate("training-operator-webhook-cert", "training-operator-ca", "training-operator.kubeflow")
    folder = _kustomization("training-operator", "manifests", certificate)
    definitions = folder / "upstream/base/crds/kustomization.yaml"
    definitions.write_text("resources: [kubeflow.org_pytorchjobs.yaml]\n", encoding="utf-8")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def kueue() -> None:
    """Kueue, for the jobs of namespaces that have its label: those of all others must not depend on it."""
    certificate = Certificate("kueue-webhook-server-cert", "kueue-ca", "kueue-webhook-service.kueue-system")
    _once("kueue", "config", *DEPLOYMENTS[3], certificate, KUEUE_IMAGE)  # half of that is one definition of 1.4 MB


def pod_groups() -> None:
    """The definitions of PodGroups, for dry runs; no scheduler here reads them."""
    coscheduling = source("scheduler-plugins") / "manifests/coscheduling/crd.yaml"
    files = (coscheduling, HERE / "manifests/volcano-pod-group.yaml")
    run("kubectl", "apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in files))


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
    _once("jobset", "config", *DEPLOYMENTS[1], certificate)


def trainer() -> None:
    """Kubeflow Trainer, whose kind is TrainJob."""
    namespace, deployment = DEPLOYMENTS[2]
    certificate = Certificate("kubeflow-trainer-webhook-cert", "kubeflow-trainer-ca", f"{deployment}.{namespace}")
    _once("trainer", "manifests", namespace, deployment, certificate)


def platform() -> None:
    """kitctl's own chart for the team that owns a cluster: what TrainJobs refer to."""
    chart = HERE.parents[2] / "charts" / "platform"
    install = ("helm", "upgrade", "--install", "kit-platform", chart, "-n", "kitctl-system", "--create-namespace")
    if not works(*install, seconds=60):  # parts of a runtime are immutable
        run("helm", "uninstall", "kit-platform", "-n", "kitctl-system", "--wait", "--timeout=120s")
        run(*install)


def _once(
    name: str, upstream: str, namespace: str, deployment: str, certificate: Certificate, image: str = KINDS_IMAGE
) -> None:
    """Apply a controller's manifests, unless it is there: they would change its certificate, but not in its pod."""
    if not works("kubectl", "-n", namespace, "get", "deployment", deployment):
        folder = _kustomization(name, upstream, certificate, image)
        run("kubectl", "apply", "--server-side", "--force-conflicts", "-k", folder)


def _kustomization(name: str, upstream: str, certificate: Certificate, image: str = KINDS_IMAGE) -> Path:
    folder = STATE / "manifests" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source(name) / upstream, folder / "upstream", copy_function=shutil.copyfile)
    run("chmod", "-R", "u+w", folder)  # Go's module cache is read-only
    text = (HERE / "manifests" / f"{name}.yaml").read_text(encoding="utf-8").replace("CONTROLLER_IMAGE", pushed(image))
    text += f"- {{path: certificate.yaml, target: {{kind: Secret, name: {certificate.secret_name}}}}}\n"
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    (folder / "certificate.yaml").write_text(certificate.secret(), encoding="utf-8")
    return folder


def ready() -> None:
    """Wait for all of them."""
    for namespace, name in DEPLOYMENTS:
        run("kubectl", "-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=120s")
