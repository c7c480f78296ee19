"""A job's snapshots on its claim, read by a helper pod, while the job exists and after it is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cluster.commands import job, kitctl
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import SHARED, TRAINER_IMAGE
from tests.cluster.kubectl import get, until
from tests.trainer.runs import flip

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

TOY = ("-m", "kittrain.workloads.toy", "4", "--samples", "256", "--batch_size", "16")


@pytest.mark.wide
def test_snapshots_are_managed_through_a_helper_pod(namespace: str, tmp_path: Path) -> None:
    options = ("--kind", "IndexedJob", "--nodes", "2", "--procs-per-node", "1", "--snapshot-every", "20")
    kitctl("submit", *job("run", namespace, *options), "--wait", *TOY)
    where = ("run", "-n", namespace)
    assert "proved: 4 epochs of 256 samples, each counted exactly once" in kitctl("audit", *where)
    assert "64     4       1" in kitctl("snapshots", "list", *where)

    (folder,) = SHARED.glob(f"pvc-*_{namespace}_run-snapshots")
    weights = tmp_path / "weights.pt"
    kitctl("snapshots", "export", *where, "-o", str(weights))
    ours, theirs = (torch.load(path, weights_only=True) for path in (weights, folder / "model.pt"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    kitctl("delete", *where)
    flip(folder / "step-00000060-g0001" / "shard-00000.bin")
    gone = (*where, "--image", pushed(TRAINER_IMAGE))
    assert "1 of 3 cannot be used: step-00000060-g0001" in kitctl("snapshots", "verify", *gone, exit_code=1)
    kitctl("snapshots", "prune", *gone, "--keep", "1", "-y")
    assert {path.name for path in folder.glob("step-*")} == {"step-00000064-g0001", "step-00000060-g0001"}
    assert "no snapshot '7'; steps with a usable one" in kitctl("snapshots", "show", *gone, "7", exit_code=1)
    until(lambda: not get(namespace, "pods")["items"])  # no pod is left
    assert "no claim 'other'" in kitctl("audit", *gone, "--claim", "other", exit_code=102)
