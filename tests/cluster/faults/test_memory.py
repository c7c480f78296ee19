"""Snapshots in the nodes' memory: pods are deleted with it, one and two at once, and the job goes on exactly."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kittrain.rank.world.order import Order
from tests.cluster.commands import job, kitctl, until_formed, until_status
from tests.cluster.conftest import restricted_namespace
from tests.cluster.faults.test_copies import copied
from tests.cluster.kind.settings import TORCH_IMAGE
from tests.cluster.kind.steps import read
from tests.cluster.kubectl import get, kubectl
from tests.cluster.power import delete_silenced
from tests.cluster.submit.test_mirror import GATEWAY, add_credentials
from tests.s3 import serving
from tests.wheels import installed

pytestmark = [pytest.mark.cluster, pytest.mark.wide, pytest.mark.timeout(1200)]  # it may build the server

ORDER = Order(samples=512, batch=16, seed=0)
EPOCHS = 60
TOY = ("-m", "kittrain.workloads.toy", str(EPOCHS), "--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch))
URL = "s3://snapshots/team/memory"


def test_pods_are_deleted_with_their_memory_and_each_sample_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        options = (
            *("--nodes", "3", "--snapshot-every", "10", "--requirements", str(tmp_path / "requirements.txt")),
            *("--set", "snapshots.storage=memory", "--set", "snapshots.size=64Mi"),
            *("--find-links", f"http://{host}:{port}/", "--no-index", "--env", f"PIP_TRUSTED_HOST={host}"),
            *("--secret", "AWS_ACCESS_KEY_ID=s3/key", "--secret", "AWS_SECRET_ACCESS_KEY=s3/secret"),
            *("--env", f"AWS_ENDPOINT_URL={server.url}", "--env", "AWS_REGION=us-east-1"),
        )
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
