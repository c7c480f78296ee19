from __future__ import annotations

import json
from typing import Any

import pytest

from bench.cluster import commands
from bench.cluster.cluster_recovery import FAULTS, next_batch
from bench.cluster.jobs import FILES, SYSTEMS, ClusterJob, as_kubeflow_does, in_a_loop
from bench.cluster.table import Trial, row
from bench.measure import ROOT

KILLED, DELETED, _, LOST = FAULTS
ALL = [KILLED, DELETED, LOST]
FIRST, SECOND, THIRD = list(SYSTEMS)[:3]


def round_of(*faults: str) -> list[Trial]:
    return [Trial(system=system, fault=fault, seconds=1.0) for system in SYSTEMS for fault in faults]


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_system_has_a_manifest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "pushed", lambda image: image)
    made = ClusterJob(system=SYSTEMS[name], namespace="team", name="run", nodes="3")._manifest()
    text = json.dumps(made)
    assert ('"bench.cluster.torchrun"' in text) == (SYSTEMS[name].loop == "plain")
    assert ("kittrain.agent" in text) == (SYSTEMS[name].loop == "trainer")


def test_a_job_gets_all_faults_of_its_shape_in_an_order_that_alternates() -> None:
    assert next_batch([], list(SYSTEMS), ALL, 5) == (FIRST, [KILLED, DELETED])
    assert next_batch([*round_of(KILLED, DELETED)], list(SYSTEMS), [KILLED, DELETED], 5) == (FIRST, [DELETED, KILLED])


def test_systems_alternate_and_a_run_continues_where_the_last_one_stopped() -> None:
    done = [Trial(system=FIRST, fault=KILLED), Trial(system=FIRST, fault=DELETED), Trial(system=SECOND, fault=KILLED)]
    assert next_batch(done, list(SYSTEMS), [KILLED, DELETED], 5) == (THIRD, [KILLED, DELETED])
    rest = [one for one in round_of(KILLED, DELETED) if (one.system, one.fault) != (SECOND, DELETED)]
    assert next_batch(rest, list(SYSTEMS), [KILLED, DELETED], 5) == (SECOND, [DELETED])
    assert next_batch(round_of(KILLED, DELETED), list(SYSTEMS), ALL, 5) == (FIRST, [LOST])


def test_it_ends_with_the_trials_wanted() -> None:
    assert next_batch(round_of(KILLED), list(SYSTEMS), [KILLED], 1) is None
    assert next_batch(round_of(KILLED), list(SYSTEMS), [KILLED], 2) == (FIRST, [KILLED])


def test_a_row_counts_dead_jobs_and_compares_the_rest_to_kitctl() -> None:
    trials = [
        *(Trial(system=FIRST, fault=KILLED, seconds=seconds, lost=3) for seconds in (1.0, 2.0, 3.0)),
        Trial(system=SECOND, fault=KILLED, seconds=8.0, lost=5),
        Trial(system=SECOND, fault=KILLED),
    ]
    assert row(trials, KILLED, FIRST) == (KILLED, FIRST, "3", "2.0", "1.0 to 3.0", "1.0", "3")
    assert row(trials, KILLED, SECOND) == (KILLED, SECOND, "2, 1 dead", "8.0", "8.0 to 8.0", "4.0", "5")
    assert row([Trial(system=FIRST, fault=LOST)], LOST, FIRST)[2:] == ("1, 1 dead", "-", "-", "-", "-")


def test_torchrun_gets_the_pods_of_kitctl_with_another_command() -> None:
    template: dict[str, Any] = {
        "spec": {"containers": [{"args": ["python"], "env": [{"name": "PET_NNODES", "value": "3"}]}]}
    }
    in_a_loop({"spec": {"template": template}})
    (container,) = template["spec"]["containers"]
    assert container["args"][0] == "bash"
    assert container["args"][-3:] == ["-m", "bench.cluster.ranks", "plain"]
    worker = {"restartPolicy": "ExitCode", "template": template}
    as_kubeflow_does({"spec": {"pytorchReplicaSpecs": {"Worker": worker}}})
    assert worker["restartPolicy"] == "OnFailure"
    assert container["args"][:3] == ["python", "-m", "bench.cluster.torchrun"]


def test_the_files_that_are_sent_exist() -> None:
    assert all((ROOT / option.partition("=")[2]).is_file() for option in FILES)
