"""Snapshots in the nodes' memory: pods are deleted with it, one and two at once, and the job goes on exactly."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kittrain.rank.world.order import Order
from tests.charts.helm import CHART, helm
from tests.cluster.commands import job, kitctl, until_formed, until_status
from tests.cluster.conftest import restricted_namespace
from tests.cluster.faults.test_copies import copied
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUBECONFIG, TORCH_IMAGE
from tests.cluster.kind.steps import read
from tests.cluster.kubectl import get, kubectl
from tests.cluster.power import delete_silenced
from tests.cluster.submit.test_mirror import GATEWAY, add_credentials
from tests.s3 import S3, serving
from tests.wheels import installed

pytestmark = [pytest.mark.cluster, pytest.mark.wide, pytest.mark.timeout(1200)]  # it may build the server

ORDER = Order(samples=512, batch=16, seed=0)
EPOCHS = 60
TOY = ("-m", "kittrain.workloads.toy", str(EPOCHS), "--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch))
URL = "s3://snapshots/team/memory"
# Fills the pod's memory but for a little, and the rest once a snapshot is being written or copied: by pages of no
# process, so that the kernel ends the largest one, which is the rank.
SQUEEZE = """
import os, pathlib, time
folder = pathlib.Path(os.environ["KIT_SNAPSHOT_DIR"])
version_1, version_2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version_1.exists() else ("memory.max", "memory.current")
limit, used = [(version_1 if version_1.exists() else version_2) / name for name in names]
(rank, *_) = [path for path in pathlib.Path("/proc").glob("[0-9]*") if "kit-rank" in (path / "comm").read_text()]
taken, part = os.memfd_create("taken"), bytes(1 << 20)
while int(used.read_text()) < int(limit.read_text()) - (16 << 20):
    os.write(taken, part)
while not any(".tmp-" in path.name for path in folder.glob("*")) and rank.exists():
    time.sleep(0.001)
while rank.exists():
    os.write(taken, part)
print("killed")
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where jobs keep their snapshots in memory.

    Attributes:
        namespace: of the pods, whose image has nothing of ours, nor the store's library.
        server: outside of the cluster.
        pages: address of a page with that library.
        requirements: a file that names it.
    """

    namespace: str
    server: S3
    pages: str
    requirements: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Of a job."""
        host = urlsplit(self.pages).hostname
        return (
            *("--nodes", "3", "--snapshot-every", "10", "--requirements", str(self.requirements)),
            *("--set", "snapshots.storage=memory", "--set", "snapshots.size=64Mi"),
            *("--find-links", self.pages, "--no-index", "--env", f"PIP_TRUSTED_HOST={host}"),
            *("--secret", "AWS_ACCESS_KEY_ID=s3/key", "--secret", "AWS_SECRET_ACCESS_KEY=s3/secret"),
            *("--env", f"AWS_ENDPOINT_URL={self.server.url}", "--env", "AWS_REGION=us-east-1"),
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    installed(tmp_path / "wheels", "obstore")
    (tmp_path / "requirements.txt").write_text("obstore\n")
    host = read(*GATEWAY)
    with (
        serving(tmp_path / "s3", host=host) as server,
        pages(tmp_path / "wheels", host) as port,  # no claim could have them
        restricted_namespace() as namespace,
    ):
        server.bucket("snapshots")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        add_credentials(namespace)
        where = f"http://{host}:{port}/"
        yield Place(namespace=namespace, server=server, pages=where, requirements=tmp_path / "requirements.txt")


def test_pods_are_deleted_with_their_memory_and_each_sample_counts_once(place: Place) -> None:
    namespace, server, options = place.namespace, place.server, place.options
    words = job("run", namespace, *options, *TOY, "--step-time", "0.1", image=TORCH_IMAGE)
    assert "set snapshots.mirror" in kitctl("submit", *words, exit_code=2)
    kitctl("submit", "--set", f"snapshots.mirror={URL}", *words)
    reached = 0
    for lost, comes_back in ((1,), False), ((0, 2), True):
        before = until_status("run", namespace, partial(copied, reached + 20))
        reached = before["progress"]["step"]
        pods = [pod for index in lost for pod in _pods(namespace, index)]
        delete_silenced(namespace, *pods)
        until_formed("run", namespace, before)
        until_status("run", namespace, partial(copied, reached))
        assert ("comes from s3" in kitctl("logs", "run", "-n", namespace)) == comes_back
    assert not get(namespace, "persistentvolumeclaims")["items"]

    kitctl("cancel", "run", "-n", namespace)
    index = json.loads((server.root / "snapshots/team/memory/mirror.json").read_bytes())
    stopped = json.loads(kitctl("status", "run", "-n", namespace, "-o", "json"))["progress"]["step"]
    assert max(one["step"] for one in index["snapshots"]) >= stopped, "the last step was in memory only"
    kitctl("delete", "run", "-n", namespace)
    words = job("again", namespace, *options, *TOY, "--step-time", "0.001", image=TORCH_IMAGE)
    kitctl("submit", "--continue", URL, *words)
    kitctl("wait", "again", "-n", namespace)
    assert f"proved: {EPOCHS} epochs of {ORDER.samples} samples" in kitctl("audit", URL)


def test_ranks_are_killed_for_want_of_memory_while_a_snapshot_is_written_or_copied(place: Place) -> None:
    namespace = place.namespace
    limit = ("--set", f"snapshots.mirror={URL}", "--set", "resources.limits.memory=1Gi")
    words = job("run", namespace, *place.options, *limit, *TOY, "--step-time", "0.1", image=TORCH_IMAGE)
    kitctl("submit", *words)
    reached = 0
    for index in (1, 0):
        before = until_status("run", namespace, partial(copied, reached + 20))
        reached = before["progress"]["step"]
        (pod,) = _pods(namespace, index)
        told = kubectl("exec", "-n", namespace, pod, "-c", "pytorch", "--", "python3", "-c", SQUEEZE)
        assert told.splitlines()[-1] == "killed", told
        until_status("run", namespace, partial(copied, reached + 40))
    assert "comes from s3" not in kitctl("logs", "run", "-n", namespace)
    kitctl("cancel", "run", "-n", namespace)
    assert f"of {ORDER.samples} samples" in kitctl("audit", URL)


@pytest.mark.long
def test_a_release_with_snapshots_in_memory_trains_to_its_end(place: Place, tmp_path: Path) -> None:
    namespace, file, code = place.namespace, tmp_path / "job.yaml", tmp_path / "code.yaml"
    given = {
        "image": pushed(TORCH_IMAGE),
        "nodes": 3,
        "command": TOY[:2],
        "args": [*TOY[2:], "--step-time", "0.001"],
        "snapshots": {"storage": "memory", "size": "64Mi", "everySteps": 10, "mirror": URL},
        "requirements": {"file": str(place.requirements), "findLinks": [place.pages], "noIndex": True},
        "env": {
            "AWS_ENDPOINT_URL": place.server.url,
            "AWS_REGION": "us-east-1",
            "PIP_TRUSTED_HOST": urlsplit(place.pages).hostname,
        },
        "secrets": {"AWS_ACCESS_KEY_ID": "s3/key", "AWS_SECRET_ACCESS_KEY": "s3/secret"},
    }
    file.write_text(json.dumps(given))
    upload = ["upload", "-f", str(file), "-n", namespace, "--kubeconfig", str(KUBECONFIG)]
    with code.open("w") as output:
        subprocess.run([sys.executable, "-m", "kitctl", *upload], check=True, stdout=output)
    done = helm("install", "run", str(CHART), "-n", namespace, "-f", str(file), "-f", str(code))
    assert done.returncode == 0, done.stderr
    kitctl("wait", "run", "-n", namespace)
    assert f"proved: {EPOCHS} epochs of {ORDER.samples} samples" in kitctl("audit", URL)
    assert not get(namespace, "persistentvolumeclaims")["items"]


@contextmanager
def pages(folder: Path, host: str) -> Iterator[int]:
    """Serve a folder by HTTP; returns the port."""
    with ThreadingHTTPServer((host, 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _pods(namespace: str, index: int) -> list[str]:
    label = f"batch.kubernetes.io/job-completion-index={index}"
    return kubectl("get", "pods", "-n", namespace, "-l", label, "-o", "jsonpath={.items[*].metadata.name}").split()
