from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from kitctl.base.errors import SpecError, UsageError
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest, merge, nested
from kitctl.kinds import KINDS
from kitctl.spec.job_spec import JobSpec
from kitctl.spec.rules import name_limit
from kitjob.names import DEFAULT_COMMAND


def build(*settings: str, file: Path | None = None, suffix: str = "", **flags: Any) -> JobSpec:
    return specfile.build(JobRequest(file=file, flags=flags, overrides=settings), suffix=suffix)


def refused(*settings: str, **flags: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        build(*settings, **flags)
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(
        'name: job\nnodes: 2\nimage: from-file\nenv: {A: "1", B: two}\ncommand: [old.py]\nargs: ["--old"]\n'
        "snapshots: {keep: 7, everySteps: 9}\n"
    )
    return path


def test_without_a_command_the_default_workload_runs() -> None:
    spec = build()
    assert (spec.name, spec.command, spec.image) == ("digits", DEFAULT_COMMAND, "auto")


def test_flags_win_over_the_file_key_by_key(job_file: Path) -> None:
    spec = build(file=job_file, nodes=3, env={"B": "3", "C": "4"}, snapshots={"keep": 1}, command=["new.py"], args=[])
    assert spec.env == {"A": "1", "B": "3", "C": "4"}
    assert (spec.nodes, spec.snapshots.keep, spec.snapshots.every_steps) == (3, 1, 9)
    assert (spec.command, spec.args) == (("new.py",), ())


def test_settings_win_over_flags(job_file: Path) -> None:
    assert build("nodes=5", "snapshots.keep=2", file=job_file, nodes=3).nodes == 5


def test_the_file_overrides_the_users_profile(job_file: Path) -> None:
    ours = {"image": "from-profile", "namespace": "team"}
    assert specfile.build(JobRequest(defaults=ours)).image == "from-profile"
    given = specfile.build(JobRequest(file=job_file, defaults=ours))
    assert (given.image, given.namespace) == ("from-file", "team")
    assert specfile.build(JobRequest(job_file, {"image": "from-flag"}, defaults=ours)).image == "from-flag"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["train.py"], "train"),
        (["src/My_Model v2.py"], "my-model-v2"),
        (["-m", "kittrain.workloads.digits"], "digits"),
        (["3d.py"], "d"),
        (["数字.py"], "job"),
        (["x" * 80 + ".py"], "x" * 61),
    ],
)
def test_a_job_without_a_name_is_named_after_its_command(command: list[str], name: str) -> None:
    assert build(command=command).name == name


@pytest.mark.parametrize("kind", ["IndexedJob", "PyTorchJob"])
@pytest.mark.parametrize("stem", ["train", "x" * 80, "a-" * 40])
def test_a_suffix_always_fits(kind: str, stem: str) -> None:
    spec = build(command=[f"{stem}.py"], kind=kind, nodes=100, suffix="x7k2")
    assert re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]-x7k2", spec.name)
    assert len(spec.name) <= name_limit(spec)


def test_a_name_that_was_given_gets_no_suffix() -> None:
    assert build(name="mine", suffix="x7k2").name == "mine"


def test_spellings_of_one_size_give_one_spec() -> None:
    assert build(nodes="3:3") == build(nodes="3") == build(nodes=3)
    assert build(nodes="2:3").nodes == "2:3"


@pytest.mark.parametrize(
    ("setting", "where", "value"),
    [
        ("env.LR=1e-3", ("env", "LR"), "1e-3"),
        ("env.EMPTY=", ("env", "EMPTY"), ""),
        ("env.EQUATION=a=b", ("env", "EQUATION"), "a=b"),
        ("policy.backoffLimit=5", ("policy", "backoff_limit"), 5),
        ("policy.deadline=90s", ("policy", "deadline"), "90s"),
        ("snapshots.enabled=false", ("snapshots", "enabled"), False),
        (
            "scheduling.nodeSelector.kubernetes.io/hostname=7",
            ("scheduling", "node_selector", "kubernetes.io/hostname"),
            "7",
        ),
        ('args=["--lr", "1e-3"]', ("args",), ("--lr", "1e-3")),
        ("scheduling.nodeSelector={disk: ssd}", ("scheduling", "node_selector"), {"disk": "ssd"}),
        ('scheduling.nodeSelector={"disk": "ssd"}', ("scheduling", "node_selector"), {"disk": "ssd"}),
        ("scheduling.nodeSelector={}", ("scheduling", "node_selector"), {}),
        ("snapshots={keep: 7}", ("snapshots", "keep"), 7),
        ("pod.metadata.labels.team=x", ("pod", "metadata"), {"labels": {"team": "x"}}),
        ("pod.metadata.labels.a.b/team=x", ("pod", "metadata"), {"labels": {"a.b/team": "x"}}),
        ("pod.spec.securityContext.fsGroup=1000", ("pod", "spec"), {"securityContext": {"fsGroup": 1000}}),
        ("pod.spec.securityContext={fsGroup: 1000}", ("pod", "spec"), {"securityContext": {"fsGroup": 1000}}),
        ("pod.spec.x=[a, b]", ("pod", "spec"), {"x": ["a", "b"]}),
        ("nodes=2:4", ("nodes",), "2:4"),
    ],
)
def test_set_converts_to_the_fields_type(setting: str, where: tuple[str, ...], value: object) -> None:
    found: Any = build(setting)
    for key in where:
        found = found[key] if isinstance(found, dict) else getattr(found, key)
    assert found == value


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"nodes": 0}, "nodes: 0 is not allowed; fix: give a whole number of at least 1, or write it like 2:4 or 8+1"),
        ({"nodes": "0:2"}, "nodes: 0:2 is not a valid node count; fix: use 1 or more, as in 3 or 2:4"),
        ({"nodes": "4:2"}, "nodes: 4:2 has a minimum above its maximum; fix: write 2:4"),
        (
            {"nodes": "many"},
            'nodes: "many" is not allowed; fix: give a whole number of at least 1, or write it like 2:4 or 8+1',
        ),
        ({"gpusPerNode": -1}, "gpusPerNode: -1 is not allowed; fix: give a whole number of at least 0"),
        ({"kind": "Job"}, f'kind: "Job" is not allowed; fix: give one of {", ".join(("auto", *KINDS))}'),
        ({"policy": {"ttl": "soon"}}, 'policy.ttl: "soon" is not allowed; fix: write it like 90s or 1h30m'),
        ({"policy": {"deadline": "12"}}, "policy.deadline: 12 has no unit; fix: write 12s, 12m or 12h"),
        (
            {"sharedMemory": "4GB"},
            "sharedMemory: 4GB has a unit that Kubernetes lacks; fix: write 4Gi, or 4G for powers of ten",
        ),
        ({"resources": {"limits": {"memory": "4"}}}, "resources.limits.memory: 4 has no unit; fix: write 4Gi or 4Mi"),
        (
            {"volumes": [{"claim": "x"}]},
            "volumes[0].mountPath: is missing; fix: give text; quote what looks like a number",
        ),
        ({"env": {"A B": "x"}}, "env.A B: is not a valid name here; fix: write it like LEARNING_RATE"),
        ({"secrets": {"A": "x"}}, 'secrets.A: "x" is not allowed; fix: write it like my-secret/token'),
        ({"policy": 3}, "policy: 3 is not allowed; fix: give a mapping of keys to values"),
        ({"args": "x"}, 'args: "x" is not allowed; fix: give a list, as in [a, b]'),
        ({"resume": 1}, "resume: 1 is not allowed; fix: give true or false, or give one of state"),
        ({"polcy": {}}, "polcy: unknown key; fix: did you mean policy?"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_field_and_a_fix(flags: dict[str, Any], problem: str) -> None:
    assert refused(**flags) == [problem]


@pytest.mark.parametrize("given", ["[IPC_LOCK, SYS_NICE]", '["IPC_LOCK","SYS_NICE"]', "[IPC_LOCK,SYS_NICE]"])
def test_a_list_in_a_setting_needs_no_quotes(given: str) -> None:
    assert build(f"pod.capabilities={given}").pod.capabilities == ("IPC_LOCK", "SYS_NICE")
    assert build("pod.capabilities=[]").pod.capabilities == ()
    assert refused("pod.capabilities=IPC_LOCK") == [
        'pod.capabilities: "IPC_LOCK" is not allowed; fix: give a list, as in [a, b]'
    ]


def test_a_mapping_in_a_setting_is_read_as_in_a_job_file() -> None:
    assert refused("scheduling.nodeSelector={disk: 1}") == [
        'scheduling.nodeSelector.disk: 1 (line 1) is ambiguous in YAML; fix: quote it: "1"'
    ]
    with pytest.raises(UsageError, match=r"--set scheduling\.nodeSelector"):
        build("scheduling.nodeSelector={a: b}, {c: d}")


def test_all_errors_are_reported_at_once() -> None:
    assert len(refused(nodes=0, backend="mpi", env={"A": 1, "B": 2}, policy={"ttl": "soon"})) == 5


def test_an_unknown_field_of_set_has_a_suggestion() -> None:
    assert refused("policy.maxRestart=1") == ["policy.maxRestart: unknown key; fix: did you mean maxRestarts?"]
    with pytest.raises(UsageError, match="not FIELD=VALUE"):
        build("nodes")


def test_problems_of_a_file_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("nodes: 2:4\n")
    with pytest.raises(SpecError, match=r"wrong\.yaml"):
        build(file=path)


def test_a_binary_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"nodes: \xff\n")
    with pytest.raises(UsageError, match=r"job\.yaml"):
        build(file=path)


def test_a_job_can_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"nodes: 7\n")))
    assert build(file=Path("-")).nodes == 7


def test_merging_replaces_lists_and_merges_mappings() -> None:
    assert merge({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2], "e": 3}}) == {
        "a": {"b": 1, "c": [2], "e": 3},
        "d": 1,
    }
    assert nested(["a", "b"], 1) == {"a": {"b": 1}}
