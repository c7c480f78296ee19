from __future__ import annotations

from typing import Any

import pytest

from kitctl.base.errors import SpecError
from kitctl.spec.job_spec import JobSpec
from kitctl.spec.rules import RULES, name_limit
from kitjob.pod_section import Pod
from kitjob.record import replace
from kitjob.sections import (
    EnvSource,
    Metrics,
    Nccl,
    Policy,
    Rendezvous,
    Requirements,
    Resources,
    Scheduling,
    Snapshots,
    Toleration,
    Volume,
)

FINE = JobSpec(name="job")
CLAIM = Volume(mount_path="/data", claim="data")


def problems(**changes: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        replace(FINE, **changes)
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": Policy(ttl="0", grace_period="0", hang_timeout="off")},
        {"policy": Policy(deadline="24855d")},
        {"args": ("a" * 131000,), "env": {"A": "a" * 131000}},
        {"rendezvous": Rendezvous(last_call="0")},
        {"nodes": 100_000},
        {"nodes": 3, "procs_per_node": 2, "virtual_ranks": 6},
        {"nodes": 2, "procs_per_node": "2,4", "virtual_ranks": 6, "gpus_per_node": 4},
        {"scheduling": Scheduling(tolerations=(Toleration(operator="Exists"),))},
        {"snapshots": Snapshots(enabled=False), "volumes": (Volume(mount_path="/snapshots", claim="a"),)},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_limits_are_inclusive(changes: dict[str, Any]) -> None:
    replace(FINE, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": "0:2"}, "nodes: 0:2 is not a valid node count; fix: use 1 or more"),
        ({"nodes": "4:2"}, "nodes: 4:2 has a minimum above its maximum; fix: write 2:4"),
        (
            {"metrics": Metrics(enabled=True, port=29400)},
            "metrics.port: 29400 is rendezvous.port; fix: give another port",
        ),
        ({"name": "Job"}, "name: 'Job' is not a DNS label; fix: use lower-case"),
        ({"name": "7b"}, "name: '7b' is not a DNS label"),
        ({"name": "job-"}, "name: 'job-' is not a DNS label"),
        (
            {"name": "a" * 62},
            "name: 62 characters leave no room for the node index in the host name; fix: use at most 61",
        ),
        ({"namespace": "a_b"}, "namespace: 'a_b' is not a DNS label"),
        ({"command": ()}, "command: is empty"),
        ({"command": ("-m",)}, "command: -m takes one module"),
        ({"command": ("-c", "pass")}, "command: -c is not supported"),
        ({"command": ("-m", "")}, "command: has an empty element"),
        ({"command": ("",)}, "command: has an empty element"),
        ({"nodes": "99999+2"}, "spares: 99999+2 is more than a job can have; fix: use at most 100000"),
        (
            {"nodes": "1+1", "snapshots": Snapshots(access_mode="ReadWriteOnce")},
            "snapshots.accessMode: ReadWriteOnce cannot be mounted by 2 nodes; fix: use ReadWriteMany, nodes: 1, or ",
        ),
        (
            {"nodes": 2, "spares": 1, "procs_per_node": "2,4"},
            "procsPerNode: a spare needs as many ranks as the node that it replaces; fix: give one number, or ",
        ),
        (
            {"snapshots": Snapshots(storage="perNode", claim="shared")},
            "snapshots.claim: is a folder that all nodes share, and with snapshots.storage: perNode each has its own",
        ),
        (
            {"snapshots": Snapshots(storage="perNode", memory_every_steps=5)},
            "snapshots.memoryEverySteps: and snapshots.storage: perNode exclude each other; fix: take snapshots more",
        ),
        (
            {"snapshots": Snapshots(storage="memory")},
            "snapshots.storage: memory is gone once all pods have ended, and all snapshots with it: the job's end, ",
        ),
        (
            {"snapshots": Snapshots(storage="memory", mirror="s3://bucket/run", claim="shared")},
            "snapshots.claim: is a folder that all nodes share, and with snapshots.storage: memory each has its own",
        ),
        (
            {"snapshots": Snapshots(storage="perNode"), "outputs": "runs"},
            "outputs: needs the claim for snapshots; fix: snapshots.storage: claim",
        ),
        ({"nodes": 100_001}, "nodes: 100001 is more than a job can have; fix: use at most 100000"),
        ({"env": {"RANK": "0"}}, "env.RANK: is set by the launcher for every rank; fix: use another name"),
        ({"env": {"KIT_X": "0"}}, "env.KIT_X: is set by the launcher"),
        ({"env": {"KIT_WARM_WORKERS": "no"}}, "env.KIT_WARM_WORKERS: is a switch; fix: give 0 or 1"),
        ({"secrets": {"PET_X": "a/b"}}, "secrets.PET_X: is set by the launcher"),
        ({"env": {"A": ""}, "secrets": {"A": "a/b"}}, "secrets.A: is also in env; fix: keep one of the two"),
        ({"env_from": (EnvSource(),)}, "envFrom[0]: needs one source"),
        ({"env_from": (EnvSource(config_map="a", secret="b"),)}, "envFrom[0]: needs one source"),
        ({"args": ("a\0b",)}, "args[0]: 'a\\x00b' cannot be passed to a process"),
        ({"env": {"A": "\udcff"}}, "env.A: '\\udcff' cannot be passed to a process"),
        ({"volumes": (Volume(mount_path="/x"),)}, "volumes[0]: needs one source"),
        ({"volumes": (Volume(mount_path="/x", claim="a", secret="b"),)}, "volumes[0]: needs one source"),
        (
            {"volumes": (Volume(mount_path="x", claim="a"),)},
            "volumes[0].mountPath: 'x' is relative; fix: begin it with /",
        ),
        ({"volumes": (CLAIM, CLAIM)}, "volumes[1].mountPath: /data is used by volumes[0]"),
        (
            {"volumes": (Volume(mount_path="/dev/shm", claim="a"),)},
            "volumes[0].mountPath: /dev/shm is used by sharedMemory",
        ),
        *(
            (
                {"volumes": (Volume(mount_path=path, claim="a"),)},
                f"volumes[0].mountPath: {path} is used by {owner}",
            )
            for path, owner in (
                ("/snapshots", "snapshots"),
                ("/snapshots/", "snapshots"),
                ("/workspace", "synced files"),
                ("//workspace", "synced files"),
                ("/tmp", "scratch space"),
                ("/data/../tmp/.", "scratch space"),
            )
        ),
        (
            {"volumes": (Volume(mount_path="/a:ro", claim="a"),)},
            "volumes[0].mountPath: '/a:ro' is not a valid mount path",
        ),
        (
            {"volumes": (Volume(mount_path="/a\n", claim="a"),)},
            "volumes[0].mountPath: '/a\\n' is not a valid",
        ),
        ({"volumes": (Volume(mount_path="/./", claim="a"),)}, "volumes[0].mountPath: '/./' would hide the image"),
        (
            {"volumes": (Volume(mount_path="/var/run/secrets/kitctl.dev", claim="a"),)},
            "volumes[0].mountPath: /var/run/secrets/kitctl.dev is used by the run's secret",
        ),
        ({"snapshots": Snapshots(path="/tmp")}, "snapshots.path: /tmp is used by scratch space"),
        ({"args": ("a", "ü" * 2**16)}, "args[1]: 131072 bytes are more than a process accepts"),
        ({"env": {"A": "a" * (2**17 - 1)}}, "env.A: 131071 bytes are more than a process accepts"),
        ({"nccl": Nccl(hca="a\0")}, "nccl.hca: 'a\\x00' cannot be passed to a process"),
        ({"policy": Policy(backoff_limit=2**31)}, "policy.backoffLimit: 2147483648 is too large"),
        ({"policy": Policy(ttl="30000d")}, "policy.ttl: 30000d is longer than 68 years; fix: use less"),
        ({"policy": Policy(hang_timeout="0s")}, "policy.hangTimeout: 0s is zero; fix: use at least 1s"),
        (
            {"snapshots": Snapshots(enabled=False, mirror="s3://bucket/run")},
            "snapshots.mirror: needs snapshots; fix: set snapshots.enabled",
        ),
        (
            {"snapshots": Snapshots(mirror="s3://bucket/run"), "env": {"AWS_SECRET_ACCESS_KEY": "x"}},
            (
                "env.AWS_SECRET_ACCESS_KEY: would be written into the job's objects, for all to read; fix: give it by "
                "secrets (AWS_SECRET_ACCESS_KEY: SECRET/KEY), and on this machine by your shell's environment"
            ),
        ),
        ({"policy": Policy(lost_after="1s")}, "policy.lostAfter: 1s is shorter than 2 s; fix: use at least 2s"),
        ({"policy": Policy(lost_after="2h")}, "policy.lostAfter: 2h is longer than 3600 s; fix: use less"),
        ({"rendezvous": Rendezvous(join_timeout="0")}, "rendezvous.joinTimeout: 0 is zero"),
        ({"snapshots": Snapshots(every="0m")}, "snapshots.every: 0m is zero"),
        (
            {"scheduling": Scheduling(tolerations=(Toleration(key="a", operator="Exists", value="b"),))},
            "scheduling.tolerations[0]: Exists takes no value, but 'b' is given",
        ),
        (
            {"scheduling": Scheduling(tolerations=(Toleration(value="b"),))},
            "scheduling.tolerations[0]: Equal needs a key",
        ),
        (
            {"nodes": 2, "snapshots": Snapshots(access_mode="ReadWriteOnce")},
            "snapshots.accessMode: ReadWriteOnce cannot be mounted by 2 nodes; fix: use ReadWriteMany, nodes: 1, or ",
        ),
        ({"snapshots": Snapshots(path="x")}, "snapshots.path: 'x' is relative"),
        ({"nodes": 3, "procs_per_node": 2, "virtual_ranks": 5}, "virtualRanks: 5 would leave some of 6 ranks idle"),
        ({"snapshots": Snapshots(enabled=False), "resume": True}, "resume: needs snapshots"),
        (
            {"resources": Resources(limits={"nvidia.com/gpu": "1"})},
            "resources.limits.nvidia.com/gpu: already set by gpusPerNode",
        ),
        ({"outputs": "/runs"}, "outputs: '/runs' is absolute; fix: give a path in the working folder"),
        ({"outputs": "a/../../b"}, "outputs: 'a/../../b' is not a path in the working folder"),
        ({"outputs": "a\n"}, "outputs: 'a\\n' is not a path in the working folder"),
        ({"outputs": "./."}, "outputs: './.' is the working folder itself; fix: name a folder in it"),
        ({"outputs": "src/", "command": ("src/train.py",)}, "outputs: 'src/' holds the script; fix: name a folder"),
        (
            {"outputs": "ck", "workdir": ".", "snapshots": Snapshots(enabled=False)},
            "outputs: needs the claim for snapshots",
        ),
        (
            {"nodes": "2:3", "procs_per_node": "2,4"},
            "procsPerNode: a number for each node needs a fixed number of nodes; fix: give one number",
        ),
        (
            {"nodes": 3, "procs_per_node": "2,4"},
            "procsPerNode: 2,4 are for 2 nodes, not for 3; fix: ",
        ),
        (
            {"nodes": 2, "procs_per_node": "2,4", "gpus_per_node": 2},
            "procsPerNode: 4 ranks are more than 2 GPUs; fix: give at most 2 for each node",
        ),
        ({"nodes": 2, "procs_per_node": "2,3", "virtual_ranks": 4}, "virtualRanks: 4 would leave some of 5 ranks idle"),
        ({"requirements": Requirements(no_index=True)}, "requirements.file: is not given; fix: name what to install"),
        (
            {"requirements": Requirements(file="r", no_index=True, index_url="https://index")},
            "requirements.noIndex: excludes indexUrl and extraIndexUrls",
        ),
        ({"requirements": Requirements(file="r", find_links=("",))}, "requirements.findLinks: has an empty element"),
        (
            {"nccl": Nccl(interface="x" * 98_304)},
            "nccl.interface: with this the nodes are told 98346 bytes of settings, and a variable holds 98304",
        ),
        (
            {"labels": {"app.kubernetes.io/name": "a"}},
            "labels.app.kubernetes.io/name: is reserved by kitctl; fix: ",
        ),
        ({"annotations": {"kitctl.dev/user": "a"}}, "annotations.kitctl.dev/user: is reserved by kitctl"),
        (
            {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "labels.kueue.x-k8s.io/queue-name: is set by kitctl; fix: use scheduling.queue",
        ),
        ({"backend": "nccl"}, "backend: nccl needs GPUs; fix: set gpusPerNode, or backend: gloo"),
        (
            {"kind": "TrainJob", "scheduling": Scheduling(queue="q")},
            "scheduling.queue: a TrainJob cannot wait in a queue",
        ),
    ],
)
def test_each_rule_names_the_field_and_the_fix(changes: dict[str, Any], message: str) -> None:
    (problem,) = problems(**changes)
    assert problem.startswith(message)
    assert "; fix: " in problem


def test_every_rule_is_checked() -> None:
    wrong = problems(
        labels={"app.kubernetes.io/name": "a"},
        nodes="4:2",
        procs_per_node="1,2,3",
        name="JOB",
        command=(),
        env={"RANK": "0", "A": "\0"},
        volumes=(Volume(mount_path="/x"),),
        gpus_per_node=2**31,
        policy=Policy(deadline="0"),
        scheduling=Scheduling(tolerations=(Toleration(),), workload_priority_class="high"),
        metrics=Metrics(enabled=True, port=29400),
        resume=True,
        outputs="ck",
        workdir=".",
        requirements=Requirements(no_index=True),
        snapshots=Snapshots(enabled=False),
        resources=Resources(limits={"nvidia.com/gpu": "1", "memory": "4"}),
        virtual_ranks=1,
        kind="Deployment",
        nccl=Nccl(interface="x" * 100_000),
        pod=Pod(spec={"restartPolicy": "Never"}),
    )
    assert len(wrong) == len(RULES)


INFIXES = {"IndexedJob": "-", "TrainJob": "-node-0-", "JobSet": "-node-0-", "PyTorchJob": "-worker-", "auto": "-"}


@pytest.mark.parametrize(("kind", "infix"), INFIXES.items())
@pytest.mark.parametrize("nodes", [1, 9, 10, 11, 99, 100, 101, 1000, 1001])
def test_the_longest_name_leaves_room_for_the_last_node(kind: str, infix: str, nodes: int) -> None:
    spec, longest = replace(FINE, kind=kind, nodes=nodes), f"{infix}{nodes - 1}"
    limit = name_limit(spec)
    assert len("a" * limit + longest) == (57 if kind in {"JobSet", "TrainJob"} else 63)
    replace(spec, name="a" * limit)
    assert "use at most" in problems(name="a" * (limit + 1), kind=kind, nodes=nodes)[0]
