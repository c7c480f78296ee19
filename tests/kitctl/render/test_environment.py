"""The environment that manifests set is the one that the trainer reads: for all kinds, whatever a job's texts are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kitctl.base import names
from kitctl.kinds import KINDS, indexed_job, job_set, pytorch_job
from kitctl.render import environment
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder
from kitctl.targets.local.records import SubmittedJob
from kitjob.document import selection
from kitjob.fields import Kind
from kitjob.job_keys import JobKeys
from kitjob.names import SECRET_KEY
from kitjob.record import replace
from kitjob.sections import Nccl, Policy, Security, Snapshots
from kitjob.variables import KIT_SPEC
from kittrain.job import env
from kittrain.job.env import NodeEnv, RankEnv
from tests import fast_yaml
from tests.kitctl.job_settings import SENT_SNAPSHOTS
from tests.kitctl.render.test_template_values import expanded
from tests.kitctl.rendered import env_in

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
    snapshots=SENT_SNAPSHOTS,
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
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("$()<>&\"'\\\n"))
NUMBER = st.integers(1, 999_999_999)
HOSTILE = {"HOME": "/root", "KIT_POD": "a-pod", "A": '","job":"another'}  # the value that ``$(NAME)`` would expand to


def pod_environment(kind: Kind) -> dict[str, str]:
    policy = replace(SPEC.policy, grace_period=f"{GRACE[kind]}s")
    job = render.manifests(replace(SPEC, kind=kind, policy=policy))[-1]
    values = _values(KINDS[kind].pod_template(job))
    controllers = {"TrainJob": _trainers, "PyTorchJob": _operators}
    return values | controllers.get(kind, lambda _: {})(job["spec"])


def _values(template: dict[str, Any]) -> dict[str, str]:
    variables = template["spec"]["containers"][0]["env"]
    return {
        one["name"]: one["value"] if "value" in one else FIELDS[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in variables
    }


def document_in(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(given[KIT_SPEC].replace("$$", "$"))
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
    assert (node.job.name, node.job.namespace, node.node_index) == ("job", "team", 3)
    assert (node.pod, node.host, node.local_addr) == ("the-pod", "the-machine", "10.0.0.3")
    assert (node.job.min_nodes, node.job.max_nodes, node.procs_per_node, node.job.gpus_per_node) == (2, 4, 2, 8)
    assert (node.run.rendezvous_port, node.job.nccl.interface, node.job.policy.max_restarts) == (29400, "eth1", 5)
    in_a_set = "job-node-0-0.job"
    hosts = {"IndexedJob": "job-0.job", "TrainJob": in_a_set, "JobSet": in_a_set, "PyTorchJob": "job-worker-0"}
    node_0 = hosts[kind]
    assert node.run.rendezvous_host == f"{node_0}.team.svc.cluster.local"
    assert node.rendezvous_conf["join_timeout"] == "900"
    assert (str(node.snapshot_dir), node.run.log_dir) == ("/snapshots", "/snapshots/logs")
    assert (node.run.report, node.grace_seconds) == ("configmap:job-status", GRACE[kind])
    assert node.run.exit_codes == KINDS[kind].exit_codes
    assert node.run_id != "local"


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_reads_the_submitted_values(kind: Kind) -> None:
    rank = env.rank_env(pod_environment(kind))
    sent = (JobKeys(**{name: getattr(spec, name) for name in JobKeys.__fields__}) for spec in (rank.job, SPEC))
    read, submitted = map(selection, sent)
    policy = {"maxRestarts": 5} | ({} if kind == "TrainJob" else {"gracePeriod": "90s"})
    assert read == submitted | {"policy": policy}
    assert rank.job.snapshots.every_seconds == 600
    assert rank.grace_seconds == GRACE[kind]
    assert (str(rank.snapshot_dir), rank.backend, rank.node_index) == ("/snapshots", "auto", 3)


def test_the_local_target_declares_what_manifests_declare(tmp_path: Path) -> None:
    job = SubmittedJob(spec=SPEC, run="run-1", created=0.0, folder="/", python="python", version="0")
    this = launch.Launch(folder=JobFolder(tmp_path), job=job, index=3, attempt=1, port=20000, state=tmp_path)
    local = launch.environment(this, base={})
    shared = environment.torchrun_env(SPEC) | environment.common_env(SPEC) | environment.script_env()
    assert {name: local.get(name) for name in shared} == shared
    here, there = (document_in(given) for given in (local, pod_environment("IndexedJob")))
    assert here["job"] == there["job"]
    assert here["run"].keys() ^ there["run"].keys() == {"rendezvousPort", "restartInPlace", "secretName"} | {
        "rendezvousHost"
    }


def test_the_seed_of_hashes_is_the_users_where_they_set_one(tmp_path: Path) -> None:
    mine = replace(SPEC, env={"PYTHONHASHSEED": "random"})
    for spec, base, expected in (
        (SPEC, {}, "0"),
        (SPEC, {"PYTHONHASHSEED": "7"}, "7"),
        (mine, {"PYTHONHASHSEED": "7"}, "random"),
    ):
        job = SubmittedJob(spec=spec, run="run-1", created=0.0, folder="/", python="python", version="0")
        this = launch.Launch(folder=JobFolder(tmp_path), job=job, index=3, attempt=1, port=20000, state=tmp_path)
        assert launch.environment(this, base=base)["PYTHONHASHSEED"] == expected
    for kind in KINDS:
        assert pod_environment(kind)["PYTHONHASHSEED"] == "0"
    given = _values(render.manifests(mine, standalone=False, run="a")[-1]["spec"]["template"])
    assert given["PYTHONHASHSEED"] == "random"


def test_pods_get_the_variables_that_the_agent_reads() -> None:
    node = env.node_env(pod_environment("PyTorchJob"))
    assert (node.run.owner, node.run.secret_name) == ("apis/kubeflow.org/v1/pytorchjobs/job", "job-rendezvous")
    assert node.run.secret_file == f"{names.SECRET_PATH}/{SECRET_KEY}"
    required = replace(SPEC, security=Security(rendezvous_secret="require"))
    given = _values(render.manifests(required, standalone=False, run="a")[-1]["spec"]["template"])
    node = env.node_env(given)
    assert (node.run.owner, node.run.secret_name) == ("", "")
    assert node.job.security.rendezvous_secret == "require"


def read(spec: JobSpec) -> tuple[NodeEnv, RankEnv]:
    """The settings that an agent and a rank read from a job that was rendered, applied and started."""
    objects = list(fast_yaml.load_all(render.to_yaml(render.manifests(spec))))
    variables = {name: value for name, value in env_in(objects).items() if isinstance(value, str)}
    environ = {name: expanded(text, HOSTILE) for name, text in variables.items()}
    return env.node_env(environ), env.rank_env(environ)


@example("$(HOME) $$(A) $", 1_000_000, 999_999_999)
@example("<&>\u2028 \"quoted\" \\ 'single'\n😀", 1, 1)
@settings(max_examples=50, deadline=None)
@given(TEXT, NUMBER, NUMBER)
def test_any_job_survives_a_round_trip(text: str, number: int, other: int) -> None:
    path = f"/a{''.join(letter for letter in text if letter.isprintable() and letter not in ':/')}"
    spec = JobSpec(
        name="job",
        nccl=Nccl(interface=text),
        virtual_ranks=number,
        snapshots=Snapshots(path=path, every_steps=number, keep_every=other, keep_best=f"max:{path}"),
        policy=Policy(max_restarts=other, grace_period=f"{number}s", hang_timeout=f"{other}s"),
    )
    node, rank = read(spec)
    assert (node.job.nccl.interface, node.run.log_dir) == (text, f"{path}/logs")
    assert rank.snapshot_dir == Path(path)
    assert selection(rank.job) == selection(node.job) == selection(spec.in_namespace("default"))
