"""A cluster is deleted with its claims, and its job goes on elsewhere from an S3 bucket."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kittrain.rank.world.order import Order
from tests.cluster.commands import job, kitctl, until_status
from tests.cluster.conftest import restricted_namespace
from tests.cluster.kind.settings import TORCH_IMAGE
from tests.cluster.kind.steps import read
from tests.cluster.kubectl import kubectl
from tests.s3 import ACCESS, SECRET, serving
from tests.wheels import installed

pytestmark = [pytest.mark.cluster, pytest.mark.wide, pytest.mark.timeout(1800)]  # it may build the server

ORDER = Order(samples=512, batch=16, seed=0)
EPOCHS = 6
TOY = ("-m", "kittrain.workloads.toy", str(EPOCHS), "--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch))
URL = "s3://snapshots/team/run"
GATEWAY = ("docker", "network", "inspect", "kind", "-f", "{{(index .IPAM.Config 0).Gateway}}")


def test_a_job_goes_on_from_its_bucket_when_its_cluster_is_gone(tmp_path: Path) -> None:
    """The other cluster is another namespace, which has neither the claim nor any object of the first one.

    The image has nothing of ours, nor the store's library; the server is outside of the cluster.
    """
    installed(tmp_path / "wheels", "obstore")
    (tmp_path / "requirements.txt").write_text("obstore\n")
    with serving(tmp_path / "s3", host=read(*GATEWAY)) as server:
        server.bucket("snapshots")
        options = (
            *("--nodes", "2", "--snapshot-every", "20", "--requirements", str(tmp_path / "requirements.txt")),
            *("--find-links", str(tmp_path / "wheels"), "--no-index"),
            *("--secret", "AWS_ACCESS_KEY_ID=s3/key", "--secret", "AWS_SECRET_ACCESS_KEY=s3/secret"),
            *("--env", f"AWS_ENDPOINT_URL={server.url}", "--env", "AWS_REGION=us-east-1"),
        )
        with restricted_namespace() as first:
            add_credentials(first)
            mirror = ("--set", f"snapshots.mirror={URL}")
            kitctl("submit", *job("run", first, *options, *mirror, *TOY, "--step-time", "0.5", image=TORCH_IMAGE))
            until_status("run", first, lambda state: state["mirror"] and (state["mirror"]["step"] or 0) >= 40)
            drilled = kitctl("drill", "run", "-n", first, "--fault", "mirror-denied", "--lasting", "20s", "-y")
            assert "caught up" in drilled
            rendered = kubectl("get", "all,configmap,pvc", "-n", first, "-o", "yaml")
            assert URL in rendered
            assert SECRET not in rendered
            kubectl("delete", "all,pvc", "--all", "-n", first, "--grace-period=0", "--force")
        with restricted_namespace() as second:
            add_credentials(second)
            began = time.monotonic()
            kitctl("submit", *job("run", second, *options, "--continue", URL, *TOY, image=TORCH_IMAGE))
            state = until_status("run", second, lambda state: (state["progress"] or {}).get("resumedFrom"))
            print(f"resumed after {time.monotonic() - began:.0f} s, from step {state['progress']['resumedFrom']}")
            kitctl("wait", "run", "-n", second)
            assert f"proved: {EPOCHS} epochs of {ORDER.samples} samples" in kitctl("audit", "run", "-n", second)
            mirrored = json.loads(kitctl("status", "run", "-n", second, "-o", "json"))["mirror"]
            assert (mirrored["step"], mirrored["behind"]) == (EPOCHS * ORDER.samples // ORDER.batch, 0)


def add_credentials(namespace: str) -> None:
    words = (f"--from-literal=key={ACCESS}", f"--from-literal=secret={SECRET}")
    kubectl("create", "secret", "generic", "s3", "-n", namespace, *words)
