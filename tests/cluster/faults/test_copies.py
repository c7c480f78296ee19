"""Nodes without a shared volume: a pod is deleted with its own, and the job goes on exactly."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.commands import State, kitctl, until_formed, until_status
from tests.cluster.faults.test_faults import delete_pod
from tests.cluster.kind.settings import SHARED
from tests.cluster.kubectl import get
from tests.cluster.toy import ORDER, submit_toy
from tests.exact import assert_each_sample_counts_once

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

EPOCHS = 40  # more than a minute: each fault waits until all nodes train, and have copies


def copied(after: int, state: State) -> bool:
    """Whether all nodes train, and a snapshot after that step has its copies."""
    copies = state["copies"] or {}
    return bool(state["phase"] == "Running" and state["readyNodes"] == 3 and (copies.get("copiedStep") or 0) > after)


@pytest.mark.wide
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("IndexedJob", marks=pytest.mark.long),
        pytest.param("JobSet", marks=pytest.mark.controllers),
        pytest.param("PyTorchJob", marks=pytest.mark.long),
        pytest.param("TrainJob", marks=(pytest.mark.controllers, pytest.mark.long)),
    ],
)
def test_pods_are_deleted_with_their_volumes_and_each_sample_counts_once(
    namespace: str, tmp_path: Path, kind: str
) -> None:
    where = ("--nodes", "3", "--set", "snapshots.storage=perNode", "--set", "snapshots.size=1Gi")
    run = submit_toy(namespace, kind, *where, "--snapshot-every", "10", epochs=EPOCHS)
    reached = 0
    for index in (1, 0):
        before = until_status("run", namespace, partial(copied, reached + 20))
        reached = before["progress"]["step"]
        delete_pod(run, index, "--grace-period=0", "--force")
        until_formed("run", namespace, before)
    claims = get(namespace, "persistentvolumeclaims")["items"]
    assert {mode for claim in claims for mode in claim["spec"]["accessModes"]} == {"ReadWriteOnce"}
    assert all(claim["metadata"]["ownerReferences"][0]["kind"] == "Pod" for claim in claims)
    assert "are on its nodes" in kitctl("snapshots", "list", "run", "-n", namespace, exit_code=2)
    run.wait()

    records = tmp_path / "records"
    records.mkdir()
    volumes = [*SHARED.glob(f"pvc-*_{namespace}_run-*-snapshots")]
    assert len(volumes) == 5, "what a deleted pod had is of no use to its successor"
    for path in (path for volume in volumes for path in volume.glob("record/*.jsonl")):
        shutil.copy(path, records / f"{path.parents[1].name}-{path.name}")
    (last,) = [volume for volume in volumes if (volume / "model.pt").exists()]
    ledger = assert_each_sample_counts_once(last, records, ORDER, epochs=EPOCHS)
    assert len({entry.generation for entry in ledger}) == 3
    assert "Copies     2 of 2, step" in kitctl("status", "run", "-n", namespace)
