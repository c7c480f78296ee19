from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kitctl.errors import SpecError
from kitctl.rules import RULES, check, name_limit
from kitctl.sections import EnvSource, Resources, Snapshots, Volume
from kitctl.spec import JobSpec

FINE = JobSpec(name="job")
CLAIM = Volume(mount_path="/data", claim="data")


def problems(**changes: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        check(msgspec.structs.replace(FINE, **changes))
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


def test_a_plain_job_passes() -> None:
    assert check(FINE) is FINE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": "0:2"}, "nodes: 0:2 is no size; fix: give at least 1"),
        ({"nodes": "4:2"}, "nodes: 4:2 has its minimum above its maximum; fix: write 2:4"),
        ({"name": "Job"}, "name: 'Job' is not a DNS label; fix: use lower-case"),
        ({"name": "7b"}, "name: '7b' is not a DNS label"),
        ({"name": "job-"}, "name: 'job-' is not a DNS label"),
        (
            {"name": "a" * 62},
            "name: 62 characters do not leave room for the node index in a host name; fix: use at most 61",
        ),
        ({"namespace": "a_b"}, "namespace: 'a_b' is not a DNS label"),
        ({"command": ()}, "command: is empty"),
        ({"command": ("-m",)}, "command: -m takes one module"),
        ({"command": ("-c", "pass")}, "command: -c is not known"),
        ({"env": {"RANK": "0"}}, "env.RANK: is set by the launcher for every rank; fix: use another name"),
        ({"env": {"KIT_X": "0"}}, "env.KIT_X: is set by the launcher"),
        ({"secrets": {"PET_X": "a/b"}}, "secrets.PET_X: is set by the launcher"),
        ({"env": {"A": ""}, "secrets": {"A": "a/b"}}, "secrets.A: is also in env; fix: keep one of the two"),
        ({"env_from": (EnvSource(),)}, "envFrom[0]: needs one source"),
        ({"env_from": (EnvSource(config_map="a", secret="b"),)}, "envFrom[0]: needs one source"),
        ({"args": ("a\0b",)}, "args[0]: 'a\\x00b' cannot be handed to a process"),
        ({"env": {"A": "\udcff"}}, "env.A: '\\udcff' cannot be handed to a process"),
        ({"volumes": (Volume(mount_path="/x"),)}, "volumes[0]: needs one source"),
        ({"volumes": (Volume(mount_path="/x", claim="a", secret="b"),)}, "volumes[0]: needs one source"),
        (
            {"volumes": (Volume(mount_path="x", claim="a"),)},
            "volumes[0].mountPath: 'x' is relative; fix: begin it with /",
        ),
        ({"volumes": (CLAIM, CLAIM)}, "volumes[1].mountPath: /data is taken by volumes[0]"),
        (
            {"volumes": (Volume(mount_path="/dev/shm", claim="a"),)},
            "volumes[0].mountPath: /dev/shm is taken by sharedMemory",
        ),
        (
            {"volumes": (Volume(mount_path="/snapshots", claim="a"),)},
            "volumes[0].mountPath: /snapshots is taken by snapshots",
        ),
        (
            {"nodes": 2, "snapshots": Snapshots(access_mode="ReadWriteOnce")},
            "snapshots.accessMode: ReadWriteOnce cannot be mounted by 2 nodes; fix: use ReadWriteMany, or nodes: 1",
        ),
        ({"snapshots": Snapshots(path="x")}, "snapshots.path: 'x' is relative"),
        ({"nodes": 3, "procs_per_node": 2, "virtual_ranks": 5}, "virtualRanks: 5 would leave some of 6 ranks idle"),
        ({"snapshots": Snapshots(enabled=False), "resume": True}, "resume: there is nothing to resume from"),
        ({"resources": Resources(limits={"nvidia.com/gpu": "1"})}, "resources.limits.nvidia.com/gpu: is gpusPerNode"),
        ({"backend": "nccl"}, "backend: nccl needs GPUs; fix: set gpusPerNode, or backend: gloo"),
    ],
)
def test_each_rule_names_the_field_and_the_fix(changes: dict[str, Any], message: str) -> None:
    (problem,) = problems(**changes)
    assert problem.startswith(message)
    assert "; fix: " in problem


def test_every_rule_is_heard() -> None:
    wrong = problems(
        nodes="4:2",
        name="JOB",
        command=(),
        env={"RANK": "0", "A": "\0"},
        volumes=(Volume(mount_path="/x"),),
        resume=True,
        snapshots=Snapshots(enabled=False),
        backend="nccl",
        virtual_ranks=1,
    )
    assert len(wrong) == len(RULES)


@pytest.mark.parametrize(("kind", "longest"), [("IndexedJob", "-10"), ("PyTorchJob", "-worker-10"), ("auto", "-10")])
def test_the_longest_name_leaves_room_for_the_last_node(kind: str, longest: str) -> None:
    spec = msgspec.structs.replace(FINE, kind=kind, nodes=11)
    limit = name_limit(spec)
    assert len("a" * limit + longest) == 63
    check(msgspec.structs.replace(spec, name="a" * limit))
    assert "use at most" in problems(name="a" * (limit + 1), kind=kind, nodes=11)[0]
