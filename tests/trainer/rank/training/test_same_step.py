"""The last snapshot and one that is due at the last step have the same step, and do not interfere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kittrain import Run, join
from kittrain.rank.snapshots.folder.chain import Chain
from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.proof import prove
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork


def train(env: dict[str, str], saves: int) -> None:
    os.environ.update(env)
    publish = Chain.publish

    def late(*args: Any) -> None:
        time.sleep(0.3)
        publish(*args)

    chain: Any = Chain
    chain.publish = late  # rank 0's; the others may be ahead of it
    with join(seed=1) as world:
        model = nn.Linear(200, 200)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with Run(world, snapshot_every=4, model=model, optimizer=optimizer) as run:
            for _ in run.steps(4):
                model(torch.ones(200)).sum().backward()
                optimizer.step()
                run.step(1.0)
            with torch.no_grad():
                model.weight.add_(1.0)  # a script may change the state after its last step
            for _ in range(saves):
                run.save(accuracy=0.5)


@pytest.mark.parametrize("saves", [0, 1, 2])
def test_the_last_step_has_one_complete_snapshot(tmp_path: Path, saves: int, capfd: pytest.CaptureFixture[str]) -> None:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "KIT_BACKEND": "gloo"}
    shared |= {"KIT_SNAPSHOT_DIR": str(tmp_path), "PET_RDZV_ID": "run"}
    ranks = [fork(train, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, saves) for rank in range(2)]
    assert [finish(rank) for rank in ranks] == [0, 0]
    manifests = {path.name: read_manifest(path) for path in tmp_path.glob("step-*")}
    newest = manifests[max(manifests)]
    assert (newest.step, dict(newest.metrics)) == (4, {"accuracy": 0.5} if saves else {})
    assert not prove(newest, manifests).broken
    command = [sys.executable, "-m", "kittrain.rank.snapshots", "--folder", str(tmp_path), "verify"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert {one["condition"] for one in found} == {"verified"}
    log = capfd.readouterr().err
    assert "no snapshot at step" not in log
