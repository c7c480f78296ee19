"""The environment that the local target sets is the one that the trainer reads."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import kitctl
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder, create
from kitctl.targets.local.records import Desired, SubmittedJob
from kitjob import document
from kitjob.sections import Policy, Rendezvous, Snapshots
from kittrain.agent.setup.secret import run_secret
from kittrain.job import env
from tests.kitctl.job_settings import SENT_SNAPSHOTS

SPEC = JobSpec(
    name="job",
    namespace="team",
    nodes="2:4",
    procs_per_node=2,
    backend="gloo",
    resume=True,
    from_scratch=True,
    virtual_ranks=16,
    snapshots=SENT_SNAPSHOTS,
    policy=Policy(max_restarts=5, grace_period="90s", hang_timeout="2m", lost_after="6s"),
    rendezvous=Rendezvous(join_timeout="20m", last_call="4s"),
)


def local_environment(tmp_path: Path, spec: JobSpec = SPEC) -> dict[str, str]:
    job = SubmittedJob(spec=spec, run="run-1", created=0.0, folder="/", python="python", version="0")
    this = launch.Launch(folder=JobFolder(tmp_path), job=job, index=3, attempt=1, port=20000, state=tmp_path)
    return launch.environment(this, {"RANK": "9", "HOME": "/x"})


def test_the_local_target_sets_what_a_node_reads(tmp_path: Path) -> None:
    node = env.node_env(local_environment(tmp_path))
    assert (node.run_id, node.node_index, node.pod, node.grace_seconds) == ("run-1", 3, "job-3", 90)
    assert (node.job.min_nodes, node.job.max_nodes, node.procs_per_node, node.backend) == (2, 4, 2, "gloo")
    assert (node.run.rendezvous_host, node.run.rendezvous_port, node.run.kitctl) == (
        "127.0.0.1",
        20000,
        kitctl.__version__,
    )
    assert (node.rendezvous_conf["join_timeout"], node.rendezvous_conf["last_call_timeout"]) == ("1200", "4")
    assert node.run.secret_file == str(tmp_path / "secret")
    assert document.selection(node.job) == document.selection(SPEC)


def test_nodes_of_the_local_target_have_a_secret_that_only_the_user_can_read(tmp_path: Path) -> None:
    spec = JobSpec(name="job")
    job = SubmittedJob(spec=spec, run="run-1", created=0.0, folder="/", python="python", version="0")
    folder = create(tmp_path / "job", job, Desired(nodes=1))
    this = launch.Launch(folder=folder, job=job, index=0, attempt=1, port=20000, state=tmp_path)
    variables = launch.environment(this, {})
    node = env.node_env(variables)
    assert node.run.secret_file == str(folder.secret_path)
    assert stat.S_IMODE(folder.secret_path.stat().st_mode) == 0o600
    found = run_secret(node, pytest.fail)
    assert found
    assert len(found) == 64
    assert found.decode() not in "".join(variables.values()) + (folder.path / "job.json").read_text()
    assert create(tmp_path / "next", job, Desired(nodes=1)).secret_path.read_bytes() != found


def test_the_local_target_sets_what_a_rank_reads(tmp_path: Path) -> None:
    rank = env.rank_env(local_environment(tmp_path))
    assert document.selection(rank.job) == document.selection(SPEC)
    assert (rank.job.snapshots.every_seconds, rank.grace_seconds) == (600, 90)
    assert rank.snapshot_dir == tmp_path / "snapshots" / "team" / "job"
    assert rank.rank == 0, "the caller's own RANK is not passed on"


def test_without_snapshots_there_is_no_folder_for_them(tmp_path: Path) -> None:
    spec = JobSpec(name="job", snapshots=Snapshots(enabled=False))
    assert env.rank_env(local_environment(tmp_path, spec)).snapshot_dir is None


def test_nodes_on_one_machine_share_no_gpu(tmp_path: Path) -> None:
    spec = JobSpec(name="job", nodes=4, gpus_per_node=2)
    assert local_environment(tmp_path, spec)["CUDA_VISIBLE_DEVICES"] == "6,7"
