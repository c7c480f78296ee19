"""Random faults in one job on the cluster: fifty of them for `make chaos`, five quick ones in `make test-long`."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from kitctl.base.errors import ConflictError, TargetError
from kitctl.targets import TargetOptions
from kitctl.targets.cluster import connect
from kitctl.targets.cluster.cluster_target import ClusterTarget
from kitctl.targets.cluster.read import job_facts
from kittrain.rank.world.order import Order
from tests.chaos import IN_THE_MIDDLE, SCENARIOS, Chaos, Event, Scenario
from tests.cluster.jobs import Run, submit
from tests.cluster.kind.settings import KUBECONFIG
from tests.cluster.kubectl import kubectl, until
from tests.cluster.power import powered_off
from tests.cluster.toy import has_trained
from tests.exact import assert_each_sample_counts_once, assert_ends_as_undisturbed, undisturbed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

Scenarios: TypeAlias = Mapping[str, Scenario]
ORDER: Final = Order(samples=512, batch=16, seed=5)


class ClusterJob:
    """A job on the cluster; see ``tests.chaos.ChaosJob``."""

    folder = "/snapshots"

    def __init__(self, run: Run) -> None:
        self.namespace = run.namespace
        self.name = run.name
        self.snapshots = run.folder
        self.target: ClusterTarget = connect(TargetOptions(kubeconfig=KUBECONFIG, warn=print))
        self._run = run

    def python(self, node: int, *arguments: str) -> str:
        pod = self.pod(node)["metadata"]["name"]
        output = b""
        with suppress(TargetError):  # the fault may have ended its container, too
            for part in self.target.api.execute(self.namespace, pod, ["python", *arguments]):
                output += part
        return output.decode().strip()

    def machine(self, node: int) -> str:
        """The Kubernetes node that a node runs on."""
        return str(self.pod(node)["spec"]["nodeName"])

    def pod(self, node: int) -> dict[str, Any]:
        running = [pod for pod in self._run.pods(node) if job_facts.is_running(pod)]
        if not running:
            raise ConflictError(f"node {node} does not run")
        return running[-1]


def drained(chaos: Chaos) -> str:
    """Drain a Kubernetes node and uncordon it."""
    machine = machine_of_any(chaos)
    selector = f"app.kubernetes.io/instance={chaos.job.name}"
    try:
        kubectl("drain", machine, "--pod-selector", selector, "--delete-emptydir-data", "--timeout=90s")
    finally:
        kubectl("uncordon", machine)
    return machine


def off_for_a_moment(chaos: Chaos) -> str:
    """Cut the power of a Kubernetes node and boot it."""
    machine = machine_of_any(chaos)
    with powered_off(machine):
        pass
    return machine


def machine_of_any(chaos: Chaos) -> str:
    """The Kubernetes node of a random node that trains."""
    assert isinstance(chaos.job, ClusterJob)
    job, found = chaos.job, list[str]()

    def known() -> bool:
        try:
            found.append(job.machine(int(chaos.rng.choice(sorted(chaos.report().nodes)))))
        except (ConflictError, IndexError):
            return False
        return True

    chaos.until(known)
    return found[0]


SLOW: Final[Scenarios] = {
    "rank frozen": lambda chaos: chaos.inject("freeze-rank"),
    "machine drained": drained,
    "machine off for a moment": off_for_a_moment,
}


@pytest.mark.long  # each of them is in test_faults.py, too
def test_five_random_faults_do_not_change_the_result(namespace: str, tmp_path: Path) -> None:
    run_with_faults(namespace, "PyTorchJob", tmp_path, scenarios=SCENARIOS, faults=5, epochs=8)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fifty_random_faults_do_not_change_the_result(namespace: str, tmp_path: Path) -> None:
    """A PyTorchJob: an Indexed Job's controller backs off after each failed pod, soon for minutes."""
    events = run_with_faults(namespace, "PyTorchJob", tmp_path, scenarios={**SCENARIOS, **SLOW}, faults=50, epochs=100)
    assert any(event.seconds is None for event in events), "some faults overlap"
    for scenario in ("while a round forms", "during a publish"):
        assert any(IN_THE_MIDDLE in event.what for event in events if event.scenario == scenario), scenario


def run_with_faults(
    namespace: str, kind: str, folder: Path, *, scenarios: Scenarios, faults: int, epochs: int
) -> list[Event]:
    """Inject faults into one job; it completes with the result of an undisturbed one."""
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(10**6))
    workload = ["-m", "kittrain.workloads.toy", str(epochs), "--seed", str(ORDER.seed)]
    workload += ["--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch)]
    options = ("--nodes", "2:3", "--snapshot-every", "20", "--snapshot-memory-every", "4", "--grace-period", "20s")
    recorded = (*workload, "--step-time", "0.05", "--record", "/snapshots/record")
    run = submit(namespace, kind, *options, "--hang-timeout", "20s", *recorded, name=f"chaos-{namespace}")
    until(lambda: has_trained(run), seconds=300)
    chaos = Chaos(ClusterJob(run), random.Random(seed))
    chaos.run(scenarios, faults=faults, steps=epochs * ORDER.steps_per_epoch)
    print(f"seed {seed}\n{chaos.table()}")
    run.wait()
    assert_each_sample_counts_once(run.folder, run.folder / "record", ORDER, epochs=epochs)
    assert_ends_as_undisturbed(run.folder, run.folder / "record", undisturbed(workload, folder))
    return chaos.events
