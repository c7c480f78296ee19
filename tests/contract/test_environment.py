"""The environment that kitctl sets is the one that the trainer reads. Only tests/contract imports both packages."""

from __future__ import annotations

import re
import stat
from dataclasses import asdict, fields
from pathlib import Path

import msgspec
import pytest

import kitctl
from kitctl.base import names
from kitctl.kinds import KINDS
from kitctl.spec.job_spec import JobSpec
from kitctl.spec.sections import Policy, Rendezvous, Snapshots
from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder, create
from kitctl.targets.local.records import Desired, Job
from kittrain.agent import main as agent
from kittrain.agent.setup.secret import run_secret
from kittrain.job import env, job_spec

SPEC = JobSpec(
    name="job",
    namespace="team",
    nodes="2:4",
    procs_per_node=2,
    backend="gloo",
    resume=True,
    from_scratch=True,
    virtual_ranks=16,
    snapshots=Snapshots(
        every_steps=7,
        every="10m",
        keep=2,
        keep_every=100,
        keep_best="max:accuracy",
        memory_every_steps=3,
        copy=False,
        model_file=False,
    ),
    policy=Policy(max_restarts=5, grace_period="90s", hang_timeout="2m"),
    rendezvous=Rendezvous(join_timeout="20m", last_call="4s", backend="c10d"),
)


def local_environment(tmp_path: Path, spec: JobSpec = SPEC) -> dict[str, str]:
    job = Job(spec=spec, run="run-1", created=0.0, folder="/", python="python", version="0")
    this = launch.Launch(folder=JobFolder(tmp_path), job=job, index=3, attempt=1, port=20000, state=tmp_path)
    return launch.environment(this, {"RANK": "9", "HOME": "/x"})


def test_both_packages_define_the_same_exit_codes() -> None:
    assert names.EXIT_CODES == job_spec.EXIT_CODES
    assert all(kind.exit_codes.keys() == job_spec.EXIT_CODES.keys() for kind in KINDS.values())
    assert names.EXIT_CODES["drained"] == env.WORKER_DRAINED


def test_kitctl_names_every_variable_that_the_trainer_reads() -> None:
    modules = (env.__file__, job_spec.__file__)
    named = {name for file in modules for name in re.findall(r'"((?:KIT|PET)_[A-Z_]+)"', Path(file).read_text())}
    own = {one.name for kind in (env.NodeEnv, env.RankEnv) for one in fields(kind)}
    own -= {one.name for one in fields(job_spec.JobSpec)} | {"local_addr", "host", "run_id"}
    own -= {"packages", "agent_runs", "agent_restarts", "restart_cause"}
    read = named | {f"KIT_{name.upper()}" for name in own}
    ours = {value for value in vars(names).values() if isinstance(value, str)}
    of_ranks = {"KIT_RANK", "KIT_LOCAL_RANK", "KIT_WORLD_SIZE", "KIT_LOCAL_WORLD_SIZE"}
    assert read - ours - of_ranks == {"KIT_PROGRESS_FILE", "KIT_HEARTBEAT_FILE", "KIT_MEMORY_DIR"}, (
        "only the agent's own variables may be missing"
    )


def test_the_local_target_sets_what_a_node_reads(tmp_path: Path) -> None:
    node = asdict(env.node_env(local_environment(tmp_path)))
    expected = {
        "job": "job",
        "namespace": "team",
        "run_id": "run-1",
        "node_index": 3,
        "pod": "job-3",
        "min_nodes": 2,
        "max_nodes": 4,
        "procs_per_node": 2,
        "gpus_per_node": 0,
        "backend": "gloo",
        "rendezvous": "c10d",
        "rendezvous_host": "127.0.0.1",
        "rendezvous_port": 20000,
        "max_restarts": 5,
        "grace_seconds": 90.0,
        "hang_timeout": 120.0,
        "secret_name": None,
        "secret_required": False,
        "owner": None,
        "kitctl_version": kitctl.__version__,
    }
    assert {name: node[name] for name in expected} == expected
    assert node["rendezvous_conf"]["join_timeout"] == "1200"
    assert node["secret_file"] is None, "torch's own rendezvous does not authenticate"
    assert node["rendezvous_conf"]["last_call_timeout"] == "4"


def test_nodes_of_the_local_target_have_a_secret_that_only_the_user_can_read(tmp_path: Path) -> None:
    spec = JobSpec(name="job")
    job = Job(spec=spec, run="run-1", created=0.0, folder="/", python="python", version="0")
    folder = create(tmp_path / "job", job, Desired(nodes=1))
    this = launch.Launch(folder=folder, job=job, index=0, attempt=1, port=20000, state=tmp_path)
    variables = launch.environment(this, {})
    node = env.node_env(variables)
    assert node.secret_file == folder.secret_path
    assert stat.S_IMODE(folder.secret_path.stat().st_mode) == 0o600
    found = run_secret(node, pytest.fail)
    assert found
    assert len(found) == 64
    assert found.decode() not in "".join(variables.values()) + (folder.path / "job.json").read_text()
    assert create(tmp_path / "next", job, Desired(nodes=1)).secret_path.read_bytes() != found


def test_the_local_target_sets_what_a_rank_reads(tmp_path: Path) -> None:
    rank = env.rank_env(local_environment(tmp_path))
    assert (rank.snapshot_every, rank.snapshot_seconds, rank.resume, rank.virtual_ranks) == (7, 600, "exact", 16)
    assert rank.from_scratch
    states = local_environment(tmp_path, msgspec.structs.replace(SPEC, resume="state", from_scratch=False))
    assert (env.rank_env(states).resume, env.rank_env(states).from_scratch) == ("state", False)
    assert (rank.snapshot_keep, rank.snapshot_keep_every, rank.snapshot_keep_best) == (2, 100, "max:accuracy")
    assert rank.memory_every == 3
    assert (rank.snapshot_copy, rank.model_file) == (False, False)
    assert rank.grace_seconds == 90
    assert rank.snapshot_dir == tmp_path / "snapshots" / "team" / "job"
    assert rank.rank == 0, "the caller's own RANK is not passed on"


def test_without_snapshots_there_is_no_folder_for_them(tmp_path: Path) -> None:
    spec = JobSpec(name="job", snapshots=Snapshots(enabled=False))
    assert env.rank_env(local_environment(tmp_path, spec)).snapshot_dir is None


def test_nodes_on_one_machine_share_no_gpu(tmp_path: Path) -> None:
    spec = JobSpec(name="job", nodes=4, gpus_per_node=2)
    assert local_environment(tmp_path, spec)["CUDA_VISIBLE_DEVICES"] == "6,7"


def test_the_agent_has_kitctls_version() -> None:
    """An agent warns if its image has another version."""
    assert agent.version() == kitctl.__version__
