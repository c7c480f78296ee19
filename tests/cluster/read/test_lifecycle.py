"""A job from submit to delete, with every command in between; it counts each sample once."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from kitctl import kinds
from tests.cluster.commands import job, kitctl, status, until_status
from tests.cluster.jobs import Run, often
from tests.cluster.kind.settings import SHARED, TORCH_IMAGE
from tests.cluster.kinds.test_chart import left_in
from tests.cluster.kubectl import apply, get, until
from tests.cluster.toy import ORDER, all_recover, has_trained
from tests.exact import assert_each_sample_counts_once

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ENDLESS: Final = 10_000  # epochs


@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_an_elastic_job_through_every_command(namespace: str, kind: str) -> None:
    run = Run(namespace=namespace, name="run", kind=kind)
    submit(run, epochs=ENDLESS)
    expect(run, world_size=2)
    until(partial(has_trained, run))
    assert "1 to 2 nodes" in does(run, "scale", "--nodes", "3", exit_code=2)
    if kinds.KINDS[kind].fixed_size:
        assert "submit it with --replace --resume" in does(run, "scale", "--nodes", "1", exit_code=2)
    else:
        scale_down_and_up(run)

    does(run, "suspend")
    assert phase(run) == ("Suspended", 0)
    with all_recover(run):
        does(run, "resume")
    with all_recover(run):
        does(run, "restart")

    does(run, "cancel")
    assert phase(run) == ("Cancelled", 0)
    assert "[rank 0]: resuming after step" in does(run, "logs"), "its agents copied them to the claim"
    does(run, "wait", exit_code=103)
    assert "kitctl restart starts a cancelled job" in does(run, "resume", exit_code=2)
    with all_recover(run):
        does(run, "restart")

    does(run, "delete")
    does(run, "status", exit_code=102)
    assert not run.pods()
    epochs = run.step() // ORDER.steps_per_epoch + 2
    submit(run, "--resume", epochs=epochs)
    does(run, "wait")
    assert "resuming after step" in does(run, "logs", "--rank", "0")
    assert_each_sample_counts_once(run.folder, run.folder / "record", ORDER, epochs=epochs)
    assert "submit it again with --replace --resume" in does(run, "restart", exit_code=2)
    does(run, "delete", "--snapshots", "-y")
    assert not get(namespace, "pvc")["items"]
    until(lambda: left_in(namespace) == set())


def scale_down_and_up(run: Run) -> None:
    """To one node, and back to two."""
    for nodes in (1, 2):
        with all_recover(run):
            does(run, "scale", "--nodes", str(nodes))
        expect(run, world_size=nodes)


def submit(run: Run, *options: str, epochs: int) -> None:
    """Submit a job with ten recorded steps per second, on one or two nodes, in an image without the trainer."""
    nodes = ("--kind", run.kind, "--nodes", "1:2", "--procs-per-node", "1", "--snapshot-every", "20")
    data = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch), "--step-time", "0.1")
    toy = ("-m", "kittrain.workloads.toy", str(epochs), "1", *data, "--record", "/snapshots/record")
    kitctl("submit", *job(run.name, run.namespace, *nodes, *options, image=TORCH_IMAGE), *toy)


def does(run: Run, command: str, *options: str, exit_code: int = 0) -> str:
    """Run a command; returns its output."""
    return kitctl(command, run.name, "-n", run.namespace, *options, exit_code=exit_code)


def expect(run: Run, *, world_size: int) -> None:
    """Wait until it trains with this many ranks."""
    until_status(run.name, run.namespace, lambda state: state["worldSize"] == world_size)


def phase(run: Run) -> tuple[str, int]:
    """Its phase, and the number of its nodes that are up."""
    state = status(run.name, run.namespace)
    return state["phase"], state["readyNodes"]


@pytest.mark.wide
def test_a_given_claim_has_a_folder_for_each_job_and_outlives_it(namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    apply(
        namespace,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "run-snapshots"}, "spec": claim},
    )
    workload = ("-m", "kittrain.workloads.toy", "1", "1", "--samples", "64", "--batch_size", "16")
    kitctl("submit", *job("run", namespace, "--claim", "run-snapshots", "--procs-per-node", "1"), "--wait", *workload)
    kept = list(SHARED.glob(f"pvc-*_{namespace}_run-snapshots/run/step-*/*"))
    assert kept
    assert {path.stat().st_uid for path in kept} == {1000}, "written by the job's user"
    output = kitctl("delete", "run", "-n", namespace, "--snapshots", "-y")
    assert "claim 'run-snapshots' stays: it was not made by kitctl submit" in output, "though it is named as if"
    assert [one["metadata"]["name"] for one in get(namespace, "pvc")["items"]] == ["run-snapshots"]
