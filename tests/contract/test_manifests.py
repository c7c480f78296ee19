"""The environment that manifests set is the one that the trainer reads, for all kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kitctl.base import names
from kitctl.kinds import KINDS, indexed_job, job_set, pytorch_job
from kitctl.render import environment
from kitctl.render import objects as render
from kitctl.spec.fields import Kind
from kitctl.spec.job_spec import JobSpec
from kitctl.spec.sections import Nccl, Policy, Security, Snapshots
from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder
from kitctl.targets.local.records import Job
from kittrain.agent.setup import secret
from kittrain.job import env

SPEC = JobSpec(
    name="job",
    namespace="team",
    nodes="2:4",
    gpus_per_node=8,
    procs_per_node=2,
    resume=True,
    from_scratch=True,
    virtual_ranks=16,
    nccl=Nccl(interface="eth1"),
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
    policy=Policy(max_restarts=5, grace_period="90s"),
)
# Values of the downward API on a cluster.
FIELDS = {
    "status.podIP": "10.0.0.3",
    "metadata.name": "the-pod",
    "spec.nodeName": "the-machine",
    f"metadata.annotations['{indexed_job.INDEX}']": "3",
    f"metadata.labels['{pytorch_job.REPLICA_INDEX}']": "3",
    f"metadata.labels['{indexed_job.JOB_UID}']": "the-uid",
    f"metadata.labels['{job_set.SET_UID}']": "the-uid",
}


GRACE = {kind: 60 if kind == "TrainJob" else 90 for kind in KINDS}  # a TrainJob's is its runtime's


def pod_environment(kind: Kind) -> dict[str, str]:
    policy = msgspec.structs.replace(SPEC.policy, grace_period=f"{GRACE[kind]}s")
    job = render.manifests(msgspec.structs.replace(SPEC, kind=kind, policy=policy))[-1]
    values = _values(KINDS[kind].pod_template(job))
    controllers = {"TrainJob": _trainers, "PyTorchJob": _operators}
    return values | controllers.get(kind, lambda _: {})(job["spec"])


def _values(template: dict[str, Any]) -> dict[str, str]:
    variables = template["spec"]["containers"][0]["env"]
    return {
        one["name"]: one["value"] if "value" in one else FIELDS[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in variables
    }


def document(variables: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(variables[names.KIT_SPEC].replace("$$", "$"))
    return found


def _trainers(job: dict[str, Any]) -> dict[str, str]:
    """The variables that Trainer's torch plugin adds (trainer 2.2, pkg/runtime/framework/plugins/torch)."""
    return {
        "PET_NNODES": str(job["trainer"]["numNodes"]),
        "PET_NPROC_PER_NODE": str(job["trainer"]["numProcPerNode"]),
        "PET_NODE_RANK": "3",
        "PET_MASTER_ADDR": "job-node-0-0.job",
        "PET_MASTER_PORT": "29500",
    }


def _operators(job: dict[str, Any]) -> dict[str, str]:
    """What Kubeflow's operator adds from ``elasticPolicy`` (training-operator 1.9, pkg/controller.v1/pytorch)."""
    policy = job["elasticPolicy"]
    return {
        "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
        "PET_NPROC_PER_NODE": job["nprocPerNode"],
        "PET_RDZV_BACKEND": policy["rdzvBackend"],
        "PET_RDZV_ENDPOINT": f"{policy['rdzvHost']}:{policy['rdzvPort']}",
        "PET_RDZV_ID": policy["rdzvId"],
        "PET_RDZV_CONF": ",".join(f"{pair['key']}={pair['value']}" for pair in policy["rdzvConf"]),
        "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_reads_the_submitted_values(kind: Kind) -> None:
    node = env.node_env(pod_environment(kind))
    assert (node.job, node.namespace, node.node_index) == ("job", "team", 3)
    assert (node.pod, node.host, node.local_addr) == ("the-pod", "the-machine", "10.0.0.3")
    assert (node.min_nodes, node.max_nodes, node.procs_per_node, node.gpus_per_node) == (2, 4, 2, 8)
    assert (node.rendezvous_port, node.interface, node.max_restarts) == (29400, "eth1", 5)
    in_a_set = "job-node-0-0.job"
    hosts = {"IndexedJob": "job-0.job", "TrainJob": in_a_set, "JobSet": in_a_set, "PyTorchJob": "job-worker-0"}
    node_0 = hosts[kind]
    assert node.rendezvous_host == f"{node_0}.team.svc.cluster.local"
    assert node.rendezvous_conf["join_timeout"] == "900"
    assert (str(node.snapshot_dir), str(node.log_dir)) == ("/snapshots", "/snapshots/logs")
    assert (node.report, node.grace_seconds) == ("configmap:job-status", GRACE[kind])
    assert node.exit_codes == KINDS[kind].exit_codes
    assert node.run_id != "local"


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_reads_the_submitted_values(kind: Kind) -> None:
    rank = env.rank_env(pod_environment(kind))
    assert (rank.snapshot_every, rank.snapshot_seconds, rank.resume, rank.virtual_ranks) == (7, 600, "exact", 16)
    assert rank.from_scratch
    assert (rank.snapshot_keep, rank.snapshot_keep_every, rank.snapshot_keep_best) == (2, 100, "max:accuracy")
    assert rank.memory_every == 3
    assert (rank.snapshot_copy, rank.model_file) == (False, False)
    assert rank.grace_seconds == GRACE[kind]
    assert (str(rank.snapshot_dir), rank.backend, rank.node_index) == ("/snapshots", "auto", 3)


def test_the_local_target_declares_what_manifests_declare(tmp_path: Path) -> None:
    job = Job(spec=SPEC, run="run-1", created=0.0, folder="/", python="python", version="0")
    this = launch.Launch(folder=JobFolder(tmp_path), job=job, index=3, attempt=1, port=20000, state=tmp_path)
    local = launch.environment(this, base={})
    shared = environment.torchrun_env(SPEC) | environment.common_env(SPEC)
    assert {name: local.get(name) for name in shared} == shared
    here, there = (document(variables) for variables in (local, pod_environment("IndexedJob")))
    differ = {name for name in here.keys() | there.keys() if (here.get(name) or None) != (there.get(name) or None)}
    by_target = {"rendezvous_host", "rendezvous_port", "log_dir", "report", "secret_file", "secret_name"}
    assert differ == by_target | {"restart_in_place"}


def test_pods_get_the_variables_that_the_agent_reads() -> None:
    node = env.node_env(pod_environment("PyTorchJob"))
    assert (node.owner, node.secret_name) == ("apis/kubeflow.org/v1/pytorchjobs/job", "job-rendezvous")
    assert (str(node.secret_file), node.secret_required) == (f"{names.SECRET_PATH}/{names.SECRET_KEY}", False)
    assert secret.KEY == names.SECRET_KEY
    required = msgspec.structs.replace(SPEC, security=Security(rendezvous_secret="require"))
    variables = _values(render.manifests(required, standalone=False, run="a")[-1]["spec"]["template"])
    node = env.node_env(variables)
    assert (node.owner, node.secret_name, node.secret_required) == (None, None, True)
