"""The environments of a node and of a rank: parsed values, defaults, and errors that name the variable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kittrain.job import env
from kittrain.job.env import node_env, rank_env
from kittrain.job.variables import EnvError


def test_without_variables_there_is_one_process() -> None:
    node, rank = node_env({}), rank_env({})
    assert (node.job.min_nodes, node.job.max_nodes, node.procs_per_node, node.hosts_rendezvous) == (1, 1, 1, True)
    assert (rank.rank, rank.world_size, rank.snapshot_dir, rank.job.resume) == (0, 1, None, False)


def test_sizes_of_fixed_and_elastic_jobs() -> None:
    assert (node_env({"PET_NNODES": "3"}).job.min_nodes, node_env({"PET_NNODES": "3"}).job.max_nodes) == (3, 3)
    assert (node_env({"PET_NNODES": "2:4"}).job.min_nodes, node_env({"PET_NNODES": "2:4"}).job.max_nodes) == (2, 4)


def test_the_index_falls_back_to_the_job_controllers() -> None:
    assert node_env({"JOB_COMPLETION_INDEX": "2"}).node_index == 2
    assert node_env({"JOB_COMPLETION_INDEX": "2", "KIT_NODE_INDEX": "1"}).node_index == 1


@pytest.mark.parametrize(
    ("job", "image", "backend"),
    [("auto", "", "auto"), ("auto", "gloo", "gloo"), ("nccl", "gloo", "nccl"), ("gloo", "", "gloo")],
)
def test_the_images_backend_is_used_only_if_the_job_sets_none(job: str, image: str, backend: str) -> None:
    environ = {"KIT_BACKEND": job} | ({"KIT_AUTO_BACKEND": image} if image else {})
    assert rank_env(environ).backend == backend
    assert node_env(environ).backend == backend


def test_unequal_nodes_have_their_own_numbers_of_ranks() -> None:
    def procs(index: int) -> int:
        document = json.dumps({"version": 2, "job": {"procsPerNode": "2,4", "nodes": 2}, "run": {}})
        return node_env({"KIT_SPEC": document, "KIT_NODE_INDEX": str(index)}).procs_per_node

    assert [procs(0), procs(1)] == [2, 4]
    with pytest.raises(EnvError, match="procsPerNode: none for node 2"):
        procs(2)


def test_folders_and_pairs() -> None:
    node = node_env({"KIT_SNAPSHOT_DIR": "/snapshots", "PET_RDZV_CONF": "join_timeout=900, read_timeout=15"})
    assert node.snapshot_dir == Path("/snapshots")
    assert dict(node.rendezvous_conf) == {"join_timeout": "900", "read_timeout": "15"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PET_NNODES", "two"),
        ("KIT_NODE_INDEX", "first"),
        ("PET_RDZV_ENDPOINT", "host:port"),
        ("PET_RDZV_CONF", "join_timeout"),
        ("KIT_BACKEND", "mpi"),
        ("KIT_AUTO_BACKEND", "mpi"),
        ("KIT_SNAPSHOTS_KEEP", "1.5"),
        ("KIT_SECURITY_RENDEZVOUS_SECRET", "yes"),
        ("KIT_POLICY_HANG_TIMEOUT", "soon"),
    ],
)
def test_impossible_values_are_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(EnvError, match=name):
        node_env({name: value})


@pytest.mark.parametrize(("value", "resume"), [("", False), ("1", True), ("state", "state")])
def test_a_rank_resumes_exactly_or_takes_the_state_alone(value: str, *, resume: bool | str) -> None:
    assert rank_env({"KIT_RESUME": value}).job.resume == resume
    with pytest.raises(EnvError, match=r"KIT_RESUME='true': not bool \| Literal\['state'\]"):
        rank_env({"KIT_RESUME": "true"})


@pytest.mark.parametrize("ranks", ["auto", "gpu"])
def test_a_launcher_may_leave_the_number_of_ranks_to_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: str
) -> None:
    monkeypatch.setattr(env, "DEVICES", tmp_path)
    node = node_env({"PET_NPROC_PER_NODE": ranks})
    assert (node.procs_per_node, node.job.gpus_per_node) == (1, 0)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    node = node_env({"PET_NPROC_PER_NODE": ranks})
    assert (node.procs_per_node, node.job.gpus_per_node) == (2, 2)
