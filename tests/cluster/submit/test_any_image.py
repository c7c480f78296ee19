"""Jobs in images that have no trainer: it travels with them, and nothing of it stays."""

from __future__ import annotations

import base64
import itertools
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl.base import names
from kitctl.code import trainer_package
from kitctl.render import pod_mounts
from kitjob.names import DEFAULT_IMAGE
from tests.charts.helm import CHART
from tests.cluster.commands import IDLE, kitctl, status, until_status
from tests.cluster.jobs import rendered
from tests.cluster.kind.images import lacking, pushed, with_packages, with_wheel
from tests.cluster.kind.settings import ENVIRON, TORCH_IMAGE, TRAINER_IMAGE
from tests.cluster.kinds.test_chart import left_in, run_helm
from tests.cluster.kubectl import apply, get, kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

KINDS = ("IndexedJob", pytest.param("PyTorchJob", marks=pytest.mark.long), "JobSet", "TrainJob")
DIGITS = ("--workload", "digits", "--", "--epochs", "2")


def config_maps(namespace: str) -> set[str]:
    return {one["metadata"]["name"] for one in get(namespace, "configmaps")["items"]} - {"kube-root-ca.crt"}


# What images are, and what a job is told there.
UNFIT: Final = {
    "no-torch": "the image has no torch for its Python ",
    "old-torch": "the image's torch is 2.5.1, and 2.6 or later is needed: choose a newer image",
    "broken-torch": "torch cannot be imported: ",
    "no-numpy": "the image has no numpy: add it to the image, or to a file that --requirements names",
    "shadowing": "the image has a kittrain of its own in /app, which its Python finds before the one that is sent",
    "no-gloo": "RuntimeError: Distributed package doesn't have Gloo built in",
    "processors": " is for processors only, and each node has 1 GPUs: choose an image with CUDA, or --backend gloo",
}
# What a job has to ask for, to need what its image lacks.
NEEDS: Final = {"processors": ("--gpus-per-node", "1"), "no-gloo": ("--procs-per-node", "2")}
# Debian's releases: the image's packages, and what a job is told there.
OLDER: Final = {
    "bullseye": (("python3",), r"the image's Python is 3\.9\.\d+ \(/usr/bin/python3\), and 3\.11 or later is needed"),
    "bookworm": (("python3-torch", "python3-numpy"), r"the image's torch is 1\.13\.\d.*, and 2\.6 or later is needed"),
}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("IndexedJob", ""),
        pytest.param("PyTorchJob", "", marks=pytest.mark.wide),
        ("JobSet", ""),
        ("TrainJob", ""),
        pytest.param("IndexedJob", "no-shell", marks=pytest.mark.wide),
        pytest.param("IndexedJob", "older-trainer", marks=pytest.mark.wide),
    ],
)
def test_digits_in_an_image_with_torch_alone(namespace: str, kind: str, what: str) -> None:
    """As any user, with a read-only root, under the profile `restricted`, without an init."""
    image = lacking(what) if what else pushed(TORCH_IMAGE)
    job = ("--name", "run", "-n", namespace, "--kind", kind, "--image", image, "--nodes", "2")
    kitctl("submit", *job, "--set", "security.runAsUser=65534", *DIGITS)
    (shared,) = trainers(namespace)
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


@pytest.mark.controllers
def test_a_train_job_that_names_no_image_keeps_its_runtimes(namespace: str) -> None:
    """The platform's, which has torch alone: the trainer comes along."""
    where = ("--name", "run", "-n", namespace, "--kind", "TrainJob", "--nodes", "2", "--wait")
    output = kitctl("submit", *where, *DIGITS)
    assert f"image: {pushed(TORCH_IMAGE)}, from the runtime kitctl-submit\n" in output
    assert {pod["spec"]["containers"][0]["image"] for pod in pods_of("run", namespace)} == {pushed(TORCH_IMAGE)}
    assert status("run", namespace)["phase"] == "Succeeded"
    kitctl("delete", "run", "-n", namespace, "-y")
    until(lambda: not config_maps(namespace))


@pytest.mark.long  # which image it is, the test before this one shows; that such an image trains, the first
def test_the_default_image_trains(namespace: str) -> None:
    kitctl("submit", "--name", "run", "-n", namespace, "--nodes", "2", "--wait", *DIGITS)
    assert status("run", namespace)["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("image", "told", "cause"),
    [
        (
            "no-python",
            "the image has no python3 (choose one with Python 3.11 and torch 2.6, or later)",
            "the image has no python3 (choose one with Python 3.11 and torch 2.6, or later)",
        ),
        pytest.param(
            "other-processor",
            "the image is for processors of another kind than the node's (choose one for both, or ",
            "the image is for another kind of processor than the machine's",
            marks=pytest.mark.wide,
        ),
    ],
)
def test_an_image_in_which_nothing_starts_is_told(namespace: str, image: str, told: str, cause: str) -> None:
    """Once by who waits for the job, and by its status: Kubernetes tries again, as broken nodes' pods end alike."""
    where = ("-n", namespace, "--image", lacking(image), "--set", "snapshots.enabled=false")
    command = [sys.executable, "-m", "kitctl", "submit", "--name", "run", *where, "--wait", *DIGITS]
    with subprocess.Popen(
        command, env=ENVIRON, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as waiting:
        assert waiting.stderr
        heard = list(itertools.takewhile(lambda line: cause not in line, waiting.stderr))
        assert waiting.poll() is None, heard
        until_status("run", namespace, lambda state: told in state["reason"])
        waiting.send_signal(signal.SIGINT)
        assert cause not in waiting.stderr.read()


@pytest.mark.wide
@pytest.mark.usefixtures("gpus")
def test_each_unfit_image_ends_its_job_in_one_line(namespace: str) -> None:
    for what in UNFIT:
        submit(what, namespace, "--image", lacking(what), *NEEDS.get(what, ()))
    for what, told in UNFIT.items():
        output = kitctl("wait", what, "-n", namespace, exit_code=100)
        assert_ended_at_once(what, namespace, re.escape(told), output)


@pytest.mark.long  # it bootstraps two releases of Debian
@pytest.mark.parametrize("release", OLDER)
def test_an_older_python_and_an_older_torch_are_told(namespace: str, release: str) -> None:
    packages, told = OLDER[release]
    ends_at_once("run", namespace, told, "--image", with_packages(release, *packages))


@pytest.mark.long  # it bootstraps a release of Debian
def test_digits_with_the_oldest_torch_that_will_do(namespace: str) -> None:
    image = with_packages("trixie", "python3-torch", "python3-numpy")
    kitctl("submit", "--name", "run", "-n", namespace, "--image", image, "--nodes", "2", "--wait", *DIGITS)
    assert status("run", namespace)["phase"] == "Succeeded"


@pytest.mark.long  # 6 GB, on one node only
@pytest.mark.timeout(2400)  # the first time it is built and pushed
def test_digits_in_a_small_image_with_a_wheel(namespace: str) -> None:
    """The interpreter that has torch is not the first one of the path."""
    where = ("--selector", "kubernetes.io/hostname=kitctl-worker", "--image", with_wheel())
    kitctl("submit", "--name", "run", "-n", namespace, *where, "--nodes", "2", "--wait", *DIGITS)
    assert status("run", namespace)["phase"] == "Succeeded"


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfit_image_ends_a_job_of_each_kind(namespace: str, kind: str) -> None:
    ends_at_once("run", namespace, re.escape(UNFIT["no-torch"]), "--image", lacking("no-torch"), "--kind", kind)


def ends_at_once(name: str, namespace: str, told: str, *options: str) -> None:
    """A job fails with its first pod, and submit and status name the cause in the same line."""
    assert_ended_at_once(name, namespace, told, submit(name, namespace, *options, "--wait", exit_code=100))


def submit(name: str, namespace: str, *options: str, exit_code: int = 0) -> str:
    """Submit a job of digits, without a claim: none trains."""
    options = ("--set", "snapshots.enabled=false", *options)
    return kitctl("submit", "--name", name, "-n", namespace, *options, *DIGITS, exit_code=exit_code)


def assert_ended_at_once(name: str, namespace: str, told: str, output: str) -> None:
    """What ``told`` finds is in the output, and in the one line of the status; nothing was tried again."""
    state = status(name, namespace)
    found = re.search(told, state["reason"])
    assert (state["phase"], bool(found)) == ("Failed", True), (state, output)
    assert found
    assert found[0] in output
    assert "\n" not in state["reason"]
    assert not state["restarts"]
    pods = pods_of(name, namespace)
    assert len(pods) <= 1, "it was tried again"
    assert all(one["restartCount"] == 0 for pod in pods for one in pod["status"]["containerStatuses"])


@pytest.mark.parametrize(
    ("trainer", "init"), [("image", "tini"), pytest.param("travels", "kit-supervisor", marks=pytest.mark.wide)]
)
def test_the_first_process_passes_a_stop_signal_on(namespace: str, trainer: str, init: str) -> None:
    """A deleted pod takes its snapshot, and its successor continues there."""
    image = ("--image", pushed(TRAINER_IMAGE), "--trainer", trainer)
    toy = ("--", "-m", "kittrain.workloads.toy", "400", "1", "--step-time", "0.1")
    kitctl("submit", "--name", "run", "-n", namespace, *image, "--set", "snapshots.everySteps=1000", *toy)
    until_status("run", namespace, lambda state: (state["progress"].get("step") or 0) > 3)
    (pod,) = pods_of("run", namespace)
    name = pod["metadata"]["name"]
    assert kubectl("exec", "-n", namespace, name, "--", "cat", "/proc/1/comm").strip() == init
    kubectl("delete", "pod", "-n", namespace, name, "--wait=false")
    until_status("run", namespace, lambda state: (state["progress"].get("snapshotStep") or 0) > 3)
    kitctl("delete", "run", "-n", namespace, "-y")


def test_what_render_prints_is_applied_and_deleted_by_kubectl(namespace: str) -> None:
    """On the client's side, where an annotation of 256 KiB has to hold each object."""
    objects = rendered(namespace, "IndexedJob", "--image", pushed(TORCH_IMAGE), *DIGITS, name="run")
    kubectl("apply", "-n", namespace, "-f", "-", given=objects)
    until(lambda: get(namespace, "job", "run")["status"].get("succeeded"))
    kubectl("delete", "-n", namespace, "-f", "-", given=objects)
    until(lambda: left_in(namespace) == set())


@pytest.mark.wide
def test_a_job_keeps_the_trainer_that_it_was_submitted_with(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a newer kitctl does to it, and to other jobs of the namespace."""
    endless = ("--", "-m", "kittrain.workloads.toy", "10000", "1", "--step-time", "0.1")
    where = ("-n", namespace, "--image", pushed(TORCH_IMAGE), "--nodes", "1:2", "--procs-per-node", "1")
    kitctl("submit", "--name", "older", *where, "--set", "snapshots.enabled=false", *endless)
    until_status("older", namespace, lambda state: state["worldSize"] == 2)
    (kept,) = trainers(namespace)

    own = trainer_package.load()
    newer = replace(own, bootstrap=own.bootstrap + b"\n# newer\n")
    monkeypatch.setattr(trainer_package, "load", lambda: newer)
    kitctl("submit", "--name", "newer", *where, *IDLE)
    assert {kept} < trainers(namespace), "one a version"
    kitctl("scale", "older", "-n", namespace, "--nodes", "1")
    until_status("older", namespace, lambda state: state["worldSize"] == 1)
    kitctl("scale", "older", "-n", namespace, "--nodes", "2")  # one pod is new
    until_status("older", namespace, lambda state: state["worldSize"] == 2)
    assert {mounted(pod) for pod in pods_of("older", namespace)} == {kept}
    kitctl("delete", "newer", "-n", namespace, "-y")
    until(lambda: trainers(namespace) == {kept})
    kitctl("delete", "older", "-n", namespace, "-y")
    until(lambda: left_in(namespace) == set())


def trainers(namespace: str) -> set[str]:
    """The names of the ConfigMaps with a trainer."""
    return {name for name in config_maps(namespace) if name.startswith("kittrain-")}


def mounted(pod: dict[str, Any]) -> str:
    """The name of the ConfigMap with a pod's trainer."""
    (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == pod_mounts.TRAINER)
    (source,) = volume["projected"]["sources"]
    return str(source["configMap"]["name"])


def pods_of(name: str, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(namespace, "pods", "-l", f"{names.LABEL_INSTANCE}={name}")["items"]
    return found


@pytest.mark.wide
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
