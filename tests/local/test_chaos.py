"""Twelve random faults in one job on this machine, or CHAOS_FAULTS; on a cluster: tests/cluster/faults."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kitctl.base.errors import ConflictError
from kitctl.targets.local.local_target import LocalTarget
from kittrain.rank.world.order import Order
from tests.chaos import SCENARIOS, Chaos
from tests.exact import assert_each_sample_counts_once, assert_ends_as_undisturbed, undisturbed

if TYPE_CHECKING:
    from tests.local.conftest import Kit

FAULTS = int(os.environ.get("CHAOS_FAULTS") or 12)
EPOCHS = 3 * FAULTS // 2
ORDER = Order(samples=512, batch=16, seed=5)
STEPS = EPOCHS * ORDER.steps_per_epoch
WORKLOAD = ["-m", "kittrain.workloads.toy", str(EPOCHS), "--seed", "5"]
WORKLOAD += ["--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch)]


class LocalJob:
    """A job of the local target; see ``tests.chaos.ChaosJob``."""

    namespace = "default"

    def __init__(self, kit: Kit, name: str) -> None:
        self.name = name
        self.target = LocalTarget.of_user()
        self.snapshots = kit.snapshots(name)
        self.folder = str(self.snapshots)
        self._kit = kit

    def python(self, node: int, *arguments: str) -> str:
        if not self._kit.job(self.name).node(node).alive():
            raise ConflictError(f"node {node} does not run")
        environ = os.environ | {"AGENT": str(self._kit.agent(self.name, node))}
        done = subprocess.run([sys.executable, *arguments], env=environ, check=False, capture_output=True, text=True)
        return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300 + 60 * FAULTS)
def test_random_faults_do_not_change_the_result(kit: Kit) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(10**6))
    job = LocalJob(kit, "chaos")
    records = job.snapshots / "record"
    options = ("--nodes", "2:3", "--snapshot-every", "20", "--snapshot-memory-every", "4", *WORKLOAD)
    kit.run("submit", "--name", job.name, *options, "--step-time", "0.05", "--record", str(records))
    chaos = Chaos(job, random.Random(seed))
    chaos.run(SCENARIOS, faults=FAULTS, steps=STEPS)
    print(f"seed {seed}\n{chaos.table()}")
    kit.until(job.name, lambda state: state["phase"] == "Succeeded")
    assert_each_sample_counts_once(job.snapshots, records, ORDER, epochs=EPOCHS)
    assert_ends_as_undisturbed(job.snapshots, records, undisturbed(WORKLOAD, kit.folder))
    assert_time_adds_up(kit, job.name)


def assert_time_adds_up(kit: Kit, name: str) -> None:
    """Each node-second is in one bucket, within half a percent."""
    print(kit.run("goodput", name, "-o", "wide"))  # fails with more than that
    found, job = json.loads(kit.read("goodput", name, "-o", "json")), kit.status(name)
    spent = {one["name"]: one["seconds"] for one in found["buckets"]}
    assert found["nodeSeconds"] == pytest.approx(found["nodes"] * (job["ended"] - job["created"]))
    assert sum(spent.values()) == pytest.approx(found["nodeSeconds"], rel=0.005)
    assert found["overlapSeconds"] < 0.005 * found["nodeSeconds"]
    assert spent["recovery"] > 0 < spent["training"]
    assert found["faults"] >= 1
