"""Jobs in images that have no trainer: it travels with them, and nothing of it stays."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import pytest

from kitctl.base import names
from kitctl.code import trainer_package
from kitjob.names import DEFAULT_IMAGE
from tests.charts.helm import CHART
from tests.cluster.commands import kitctl, status, until_status
from tests.cluster.kind.images import lacking, pushed
from tests.cluster.kind.settings import TORCH_IMAGE, TRAINER_IMAGE
from tests.cluster.kinds.test_chart import run_helm
from tests.cluster.kubectl import apply, get, kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

KINDS = ("IndexedJob", pytest.param("PyTorchJob", marks=pytest.mark.long), "JobSet", "TrainJob")
DIGITS = ("--workload", "digits", "--", "--epochs", "2")


def config_maps(namespace: str) -> set[str]:
    return {one["metadata"]["name"] for one in get(namespace, "configmaps")["items"]} - {"kube-root-ca.crt"}


# What images are, and what a job is told there.
UNFIT: Final = {
    "no-torch": "the image has no torch for its Python ",
    "old-torch": "the image's torch is 2.5.1, and 2.6 or later is needed: choose a newer image",
    "broken-torch": "the image's torch cannot be imported: ",
    "no-numpy": "the image has no numpy: add it to the image, or to a file that --requirements names",
    "processors": " is for processors only, and each node has 1 GPUs: choose an image with CUDA, or --backend gloo",
}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("IndexedJob", ""),
        ("PyTorchJob", ""),
        ("JobSet", ""),
        ("TrainJob", ""),
        ("IndexedJob", "no-shell"),
        ("IndexedJob", "older-trainer"),
    ],
)
def test_digits_in_an_image_with_torch_alone(namespace: str, kind: str, what: str) -> None:
    """As any user, with a read-only root, under the profile `restricted`, without an init."""
    image = lacking(what) if what else pushed(TORCH_IMAGE)
    job = ("--name", "run", "-n", namespace, "--kind", kind, "--image", image, "--nodes", "2")
    kitctl("submit", *job, "--set", "security.runAsUser=65534", *DIGITS)
    (shared,) = (name for name in config_maps(namespace) if name.startswith("kittrain-"))
    assert get(namespace, "configmap", shared)["immutable"]
    done = until_status("run", namespace, lambda state: state["phase"] not in {"Pending", "Starting", "Running"})
    assert done["phase"] == "Succeeded", done
    assert "whole" in kitctl("snapshots", "list", "run", "-n", namespace)  # a helper pod of the same image
    kitctl("delete", "run", "-n", namespace, "-y")
    until(lambda: not config_maps(namespace))


def test_a_job_that_names_no_image_has_the_namespaces(namespace: str) -> None:
    """Without one, PyTorch's own, for which the test cluster has another one."""
    idle = ("-n", namespace, "--selector", "kitctl.test/no-such=node", "--set", "snapshots.enabled=false")
    images = []
    for name, defaults in (("first", {}), ("second", {"image": "team/torch:3", "mirror": "registry.example/hub"})):
        if defaults:
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.NAMESPACE_DEFAULTS}}
            apply(namespace, config | {"data": defaults})
        kitctl("submit", "--name", name, *idle)
        spec = get(namespace, "job", name)["spec"]["template"]["spec"]
        images.append(spec["containers"][0]["image"])
    assert images == [DEFAULT_IMAGE, "registry.example/hub/team/torch:3"]


@pytest.mark.long  # which image it is, the test before this one shows; that such an image trains, the first
def test_the_default_image_trains(namespace: str) -> None:
    kitctl("submit", "--name", "run", "-n", namespace, "--nodes", "2", "--wait", *DIGITS)
    assert status("run", namespace)["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("no-python", "the image has no python3 (choose one with Python 3.11 and torch 2.6, or later)"),
        ("other-processor", "the image is for processors of another kind than the node's (choose one for both, or "),
    ],
)
def test_an_image_in_which_nothing_starts_is_told(namespace: str, image: str, told: str) -> None:
    kitctl("submit", "--name", "run", "-n", namespace, "--image", lacking(image), *DIGITS)
    until_status("run", namespace, lambda state: told in state["reason"])


@pytest.mark.usefixtures("gpus")
def test_each_unfit_image_ends_its_job_in_one_line(namespace: str) -> None:
    for what, told in UNFIT.items():
        gpus = ("--gpus-per-node", "1") if what == "processors" else ()
        ends_at_once(what, namespace, told, "--image", lacking(what), *gpus)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfit_image_ends_a_job_of_each_kind(namespace: str, kind: str) -> None:
    ends_at_once("run", namespace, UNFIT["no-torch"], "--image", lacking("no-torch"), "--kind", kind)


def ends_at_once(name: str, namespace: str, told: str, *options: str) -> None:
    """A job fails with its first pod, and submit and status name the cause in the same line."""
    output = kitctl("submit", "--name", name, "-n", namespace, *options, "--wait", *DIGITS, exit_code=100)
    state = status(name, namespace)
    assert (state["phase"], told in state["reason"], told in output) == ("Failed", True, True), (state, output)
    assert state["reason"].removeprefix("node 0: ") in output
    assert "\n" not in state["reason"]
    pods = get(namespace, "pods", "-l", f"{names.LABEL_INSTANCE}={name}")["items"]
    assert len(pods) <= 1, "it was tried again"
    assert all(one["restartCount"] == 0 for pod in pods for one in pod["status"]["containerStatuses"])


@pytest.mark.parametrize(("trainer", "init"), [("image", "tini"), ("travels", "kit-supervisor")])
def test_the_first_process_passes_a_stop_signal_on(namespace: str, trainer: str, init: str) -> None:
    """A deleted pod takes its snapshot, and its successor continues there."""
    image = ("--image", pushed(TRAINER_IMAGE), "--trainer", trainer)
    toy = ("--", "-m", "kittrain.workloads.toy", "400", "1", "--step-time", "0.1")
    kitctl("submit", "--name", "run", "-n", namespace, *image, "--set", "snapshots.everySteps=1000", *toy)
    until_status("run", namespace, lambda state: (state["progress"].get("step") or 0) > 3)
    (pod,) = get(namespace, "pods", "-l", f"{names.LABEL_INSTANCE}=run")["items"]
    name = pod["metadata"]["name"]
    assert kubectl("exec", "-n", namespace, name, "--", "cat", "/proc/1/comm").strip() == init
    kubectl("delete", "pod", "-n", namespace, name, "--wait=false")
    until_status("run", namespace, lambda state: (state["progress"].get("snapshotStep") or 0) > 3)
    kitctl("delete", "run", "-n", namespace, "-y")


def test_a_packaged_chart_brings_the_trainer(namespace: str, tmp_path: Path) -> None:
    """A Secret holds all of a release, 1 MiB at most, and the trainer twice."""
    trainer_package.load()  # packs it, where a source has changed
    run_helm(namespace, "package", str(CHART), "-d", str(tmp_path))
    (packaged,) = tmp_path.glob("training-job-*.tgz")
    args = ["--epochs", "2"]
    run_helm(namespace, "install", "run", str(packaged), "-f", "-", given={"image": pushed(TORCH_IMAGE), "args": args})
    until(lambda: get(namespace, "job", "run")["status"].get("succeeded"))
    (secret,) = (one for one in get(namespace, "secrets")["items"] if one["type"] == "helm.sh/release.v1")
    assert len(base64.b64decode(secret["data"]["release"])) < 900 * 1024
    run_helm(namespace, "uninstall", "run", "--wait", "--cascade", "foreground")
    assert config_maps(namespace) == set()
