"""A job from submit to delete, with every verb on the way; it counts each sample once all the same."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from tests.cluster.commands import job, kitctl, status, until_status
from tests.cluster.jobs import KINDS, Run
from tests.cluster.kind.settings import SHARED
from tests.cluster.kubectl import apply, get, until
from tests.cluster.toy import ORDER, all_recover, has_trained
from tests.exact import assert_each_sample_counts_once

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ENDLESS: Final = 10_000  # epochs


def test_elastic_jobs_of_both_kinds_through_every_verb(namespace: str) -> None:
    runs = [Run(namespace=namespace, name=kind.lower(), kind=kind) for kind in KINDS]
    for run in runs:
        submit(run, epochs=ENDLESS)
    expect(runs, world_size=2)
    for run in runs:
        until(partial(has_trained, run))
    with all_recover(*runs):
        each(runs, "scale", "--nodes", "1")
    expect(runs, world_size=1)
    assert all("1 to 2 nodes" in told for told in each(runs, "scale", "--nodes", "3", exit_code=2))
    with all_recover(*runs):
        each(runs, "scale", "--nodes", "2")
    expect(runs, world_size=2)

    each(runs, "suspend")
    assert phases(runs) == {("Suspended", 0)}
    with all_recover(*runs):
        each(runs, "resume")
    with all_recover(*runs):
        each(runs, "restart")

    each(runs, "cancel")
    assert phases(runs) == {("Cancelled", 0)}
    each(runs, "wait", exit_code=103)
    assert all("kitctl restart starts a cancelled job" in told for told in each(runs, "resume", exit_code=2))
    with all_recover(*runs):
        each(runs, "restart")

    each(runs, "delete")
    each(runs, "status", exit_code=102)
    assert not any(run.pods() for run in runs)
    epochs = {run.name: run.step() // ORDER.steps_per_epoch + 2 for run in runs}
    for run in runs:
        submit(run, "--resume", epochs=epochs[run.name])
    each(runs, "wait")
    for run in runs:
        assert "going on after step" in kitctl("logs", run.name, "-n", namespace, "--rank", "0")
        assert_each_sample_counts_once(run.folder, run.folder / "record", ORDER, epochs=epochs[run.name])
    assert all("submit it again with --replace --resume" in told for told in each(runs, "restart", exit_code=2))
    each(runs, "delete", "--snapshots", "-y")
    assert not get(namespace, "pvc")["items"]


def submit(run: Run, *options: str, epochs: int) -> None:
    """Ten steps a second, recorded, on one or two nodes."""
    nodes = ("--kind", run.kind, "--nodes", "1:2", "--procs-per-node", "1", "--snapshot-every", "20")
    data = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch), "--step-time", "0.1")
    toy = ("-m", "trainer.workloads.toy", str(epochs), "1", *data, "--record", "/snapshots/record")
    kitctl("submit", *job(run.name, run.namespace, *nodes, *options), *toy)


def each(runs: list[Run], verb: str, *options: str, exit_code: int = 0) -> list[str]:
    """What a verb says about each of them."""
    return [kitctl(verb, run.name, "-n", run.namespace, *options, exit_code=exit_code) for run in runs]


def expect(runs: list[Run], *, world_size: int) -> None:
    """Wait until all train with that many ranks."""
    for run in runs:
        until_status(run.name, run.namespace, lambda state: state["worldSize"] == world_size)


def phases(runs: list[Run]) -> set[tuple[str, int]]:
    """What they are in, with how many nodes up."""
    states = [status(run.name, run.namespace) for run in runs]
    return {(state["phase"], state["ready"]) for state in states}


def test_a_claim_of_ones_own_has_a_folder_for_each_job_and_outlives_it(namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    apply(namespace, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}, "spec": claim})
    workload = ("-m", "trainer.workloads.toy", "1", "1", "--samples", "64", "--batch_size", "16")
    kitctl("submit", *job("run", namespace, "--claim", "mine", "--procs-per-node", "1"), "--wait", *workload)
    kept = list(SHARED.glob(f"pvc-*_{namespace}_mine/run/step-*/*"))
    assert kept
    assert {path.stat().st_uid for path in kept} == {1000}, "nobody special wrote them"
    kitctl("delete", "run", "-n", namespace, "--snapshots", "-y")
    assert [one["metadata"]["name"] for one in get(namespace, "pvc")["items"]] == ["mine"]
