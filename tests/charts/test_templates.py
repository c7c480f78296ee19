from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kitctl import kinds
from kitctl.code.code_tree import ARCHIVE_LIMIT, Sources
from kitctl.code.sources import sources
from kitctl.code.workdir.collecting import collect
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.spec.job_spec import JobSpec
from kitjob import variables
from kittrain.job.env import node_env
from tests.charts.helm import CHART, DIFFERENCES, Object, alike, manifests, notes_of, rendered
from tests.kitctl.render.test_objects import ACCEPTED, KINDS, LIMITS, SOURCES
from tests.kitctl.render.test_template_values import expanded
from tests.kitctl.rendered import document_in, env_in, of_kind
from tests.wheels import wheel

DOCS = CHART.parents[1] / "docs"


def both(case: Path, kind: str) -> tuple[list[Object], list[Object]]:
    """A case rendered by kitctl and by the chart, with the files that its script needs."""
    spec = specfile.build(JobRequest(file=case, flags={"kind": kind}))
    sources = SOURCES if spec.script == "train.py" else {}
    chart = rendered("-f", str(case), "--set", f"kind={kind}", given={"sources": sources})
    return manifests(spec, Sources(files=dict(sorted(sources.items())))), chart


def assert_equal(job: dict[str, Any], sources: dict[str, str] | None = None) -> None:
    """kitctl and the chart render equal objects."""
    spec = specfile.build(JobRequest(flags=job))
    chart = rendered(given=job | {"sources": sources or {}})
    assert alike(chart) == alike(manifests(spec, Sources(files=dict(sorted((sources or {}).items())))))


@pytest.mark.parametrize(("case", "kind"), ACCEPTED + LIMITS, ids=lambda value: getattr(value, "stem", value))
def test_kitctl_and_the_chart_give_equal_objects(case: Path, kind: str) -> None:
    kitctl, chart = both(case, kind)
    assert alike(chart) == alike(kitctl)


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_every_listed_difference_exists(difference: str) -> None:
    others = DIFFERENCES.keys() - {difference}
    pairs = [both(case, kind) for case, kind in ACCEPTED if case.stem == "cpu-2-nodes"]
    assert any(alike(chart, but_for=others) != alike(kitctl, but_for=others) for kitctl, chart in pairs)


def test_the_document_lists_the_same_differences() -> None:
    text = (DOCS / "helm.md").read_text(encoding="utf-8")
    listed = text.partition("## Differences from kitctl")[2].partition("\n## ")[0]
    assert [line.split(":")[0].removeprefix("- ") for line in listed.splitlines() if line.startswith("- ")] == list(
        DIFFERENCES
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_without_a_name_is_named_after_its_release(kind: str) -> None:
    chart = rendered("--namespace", "team", release="my-run", given={"kind": kind})
    spec = specfile.build(JobRequest(flags={"name": "my-run", "namespace": "team", "kind": kind}))
    assert alike(chart) == alike(manifests(spec))


def test_auto_is_an_indexed_job() -> None:
    assert {thing["kind"] for thing in rendered(given={"kind": "auto"})} >= {"Job", "Service"}


@pytest.mark.parametrize("nodes", [3, "3", "3:3", "2:3"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_node_count_may_be_a_number_or_text(nodes: int | str, kind: str) -> None:
    assert_equal({"name": "job", "kind": kind, "nodes": nodes})


def test_numbers_of_any_length_are_whole() -> None:
    security = {"runAsUser": 1000660000, "fsGroup": 1000660000}
    numbers = {
        "snapshots": {"everySteps": 12345678, "memoryEverySteps": 12345678, "keepEvery": 12345678},
        "policy": {"backoffLimit": 12345678},
        "security": security,
    }
    assert_equal({"name": "job", **numbers})
    set_by_flag = rendered("--set", "snapshots.everySteps=12345678,policy.backoffLimit=12345678")
    assert set_by_flag[-1]["spec"]["backoffLimit"] == 12345678
    assert document_in(set_by_flag)["job"]["snapshots"]["everySteps"] == 12345678
    assert '"everySteps":12345678' in env_in(set_by_flag)[variables.KIT_SPEC], "not 1.2345678e+07"


TEXTS = ["<a> & b", "$(HOME) $$ $(", "a \"b\" 'c' \\", "a\nb\t", "{{ .Values }}", "ü 🦆 数字", "1e3", "\u2028"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_document_contains_any_text_unchanged(text: str) -> None:
    job = {"name": "job", "nccl": {"interface": text}, "snapshots": {"path": f"/{text}"}}
    chart = rendered(given=job)
    agent = node_env({variables.KIT_SPEC: expanded(env_in(chart)[variables.KIT_SPEC], {"HOME": "/root"})})
    assert (agent.job.nccl.interface, agent.run.log_dir) == (text, f"/{text}/logs")


@pytest.mark.parametrize("duration", ["90s", "010s", "08m", "1h30m", "2d3h4m5s"])
def test_durations_are_seconds(duration: str) -> None:
    policy = {"deadline": duration, "gracePeriod": duration, "hangTimeout": duration}
    assert_equal({"name": "job", "policy": policy, "snapshots": {"every": duration}})


@pytest.mark.parametrize("part", ["requests", "limits"])
@pytest.mark.parametrize(
    "amounts", [{"cpu": "2"}, {"memory": "256Mi"}, {"cpu": "50m", "memory": "1Gi", "rdma/hca": "1"}]
)
def test_configured_requests_replace_the_defaults(part: str, amounts: dict[str, str]) -> None:
    assert_equal({"name": "job", "gpusPerNode": 2, "resources": {part: amounts}})


@pytest.mark.parametrize("policy", [True, False, "require"])
def test_a_network_policy_is_rendered_unless_disabled(policy: object) -> None:
    assert_equal({"name": "job", "security": {"networkPolicy": policy}})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("namespaces", [[], ["monitoring", "observability"]])
def test_metrics_are_opened_to_the_namespaces_that_are_named(kind: str, namespaces: list[str]) -> None:
    assert_equal({"name": "job", "kind": kind, "metrics": {"enabled": True, "port": 9500, "from": namespaces}})
    assert_equal({"name": "job", "kind": kind, "metrics": {"from": namespaces}})


def test_hang_detection_can_be_off() -> None:
    assert_equal({"name": "job", "policy": {"hangTimeout": "off"}})


@pytest.mark.parametrize(
    "text", ["$(HOME) $$ $", "a \"b\" 'c' \\", "a\nb\t", "{{ .Values }}", "yes", "1e3", "", "ü 🦆"]
)
def test_text_arrives_unchanged(text: str) -> None:
    assert_equal({"name": "job", "args": [text], "env": {"TEXT": text, "NO": text}})


def test_the_users_variables_override_ours() -> None:
    assert_equal({"name": "job", "nccl": {"debug": "INFO"}, "env": {"NCCL_DEBUG": ""}})
    assert_equal({"name": "job", "nccl": {"debug": "INFO"}, "secrets": {"NCCL_DEBUG": "settings/debug"}})


def test_files_of_any_name_are_sent() -> None:
    sources = {"train.py": "a", "lib/train.py": "b", "lib_train.py": "c", "a b/ü.py": "d"}
    assert_equal({"name": "job", "command": ["./train.py"]}, sources)


def test_a_script_is_sent_by_set_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ü')\n", encoding="utf-8")
    option = f"sources.src/train\\.py={tmp_path / 'train.py'}"
    chart = rendered("--set-file", option, given={"command": ["src/train.py"]})
    spec = JobSpec(name="job", command=("src/train.py",))
    assert alike(chart) == alike(manifests(spec, Sources(files={"src/train.py": "print('ü')\n"})))


@pytest.mark.parametrize("claim", ["", "team"])
@pytest.mark.parametrize("size", [1, ARCHIVE_LIMIT])
def test_a_sent_folder_is_mounted_as_by_kitctl(tmp_path: Path, size: int, claim: str) -> None:
    (tmp_path / "train.py").write_bytes(os.urandom(size))
    workdir = collect(tmp_path, ())
    place = {"configMap": "job-sources"} if workdir.archive is not None else {}
    assert bool(place) == (size == 1)
    job: dict[str, Any] = {"name": "job", "command": ["train.py"], "workdir": ".", "snapshots": {"claim": claim}}
    job |= {"outputs": "check points/" if claim else ""}
    chart = rendered(given=job | {"code": {"digest": workdir.tree.digest} | place})
    ours = manifests(specfile.build(JobRequest(flags=job)), Sources(workdir=workdir))
    assert alike(chart) == alike([one for one in ours if one["metadata"]["name"] != "job-sources"])


@pytest.mark.parametrize("claim", [True, False])
@pytest.mark.parametrize("size", [1, ARCHIVE_LIMIT])
def test_sent_requirements_are_mounted_as_by_kitctl(tmp_path: Path, size: int, claim: bool) -> None:  # noqa: FBT001
    wheel(tmp_path / "wheels", "alpha", "1.0", files={"alpha.py": f"# {os.urandom(size).hex()}"})
    (tmp_path / "requirements.txt").write_text("alpha\n")
    job: dict[str, Any] = {"name": "job", "command": ["-m", "m"], "snapshots": {"enabled": claim or size > 1}}
    job |= {"requirements": {"file": "requirements.txt", "findLinks": ["wheels"], "noIndex": True}}
    spec = specfile.build(JobRequest(flags=job))
    found = sources(spec, tmp_path)
    assert found.requirements
    place = {"configMap": "job-requirements"} if found.requirements.archive is not None else {}
    assert bool(place) == (size == 1)
    chart = rendered(given=job | {"code": {"requirements": {"digest": found.requirements.tree.digest} | place}})
    ours = manifests(spec, found)
    assert alike(chart) == alike([one for one in ours if one["metadata"]["name"] != "job-requirements"])


# -- the chart alone --------------------------------------------------------------------------------------------------


def test_scale_sets_the_current_node_count_of_an_elastic_job() -> None:
    spec = rendered("--set", "scale=3", given={"nodes": "2:4"})[-1]["spec"]
    assert (spec["completions"], spec["parallelism"]) == (3, 3)
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    spec = rendered("--set", "scale=3", given={"nodes": "2:4", "kind": "PyTorchJob"})[-1]["spec"]
    assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert (spec["elasticPolicy"]["minReplicas"], spec["elasticPolicy"]["maxReplicas"]) == (2, 4)


def digest(**values: Any) -> str:
    found: str = rendered(given={"nodes": "2:4", **values})[-1]["metadata"]["annotations"]["kitctl.dev/pod-digest"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_digest_of_pods_shows_what_an_upgrade_may_change(kind: str) -> None:
    may: list[dict[str, Any]] = [
        {"keepSnapshots": False},
        *([] if kind == "TrainJob" else [{"policy": {"ttl": "1h"}}]),  # its runtime's
    ]
    may_not: list[dict[str, Any]] = [
        {"image": "other"},
        {"nodes": "2:3"},
        {"policy": {"maxRestarts": 1}},
        {"policy": {"hangTimeout": "off"}},
        {"sources": {"a.py": "1"}},
        {"sources": {"a.py": "2"}},
    ]
    if kinds.KINDS[kind].fixed_size:
        may_not.append({"policy": {"deadline": "1h"}})
    else:
        may += [{"scale": 3}, {"policy": {"deadline": "1h", "backoffLimit": 1}}]
    assert {digest(kind=kind, **values) for values in may} == {digest(kind=kind)}
    assert len({digest(kind=kind, **values) for values in [{}, *may_not]}) == 1 + len(may_not)


def test_snapshots_outlive_the_release_by_default() -> None:
    kept, not_kept = (
        of_kind(rendered("--set", setting), "PersistentVolumeClaim")["metadata"]
        for setting in ("keepSnapshots=true", "keepSnapshots=false")
    )
    assert kept["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in not_kept


def test_the_notes_say_where_snapshots_are_and_what_is_left_of_them(tmp_path: Path) -> None:
    notes = notes_of(CHART, tmp_path)

    def of(**snapshots: Any) -> str:
        return notes({"snapshots": snapshots, "keepSnapshots": False}).partition("helm test -n default kit")[2]

    assert of() == " Snapshots and each rank's log are on the claim kit-snapshots. It is deleted with the release."
    gone = "of each node, and go with the release."
    assert of(storage="perNode") == f" Snapshots are in a volume {gone} Set snapshots.mirror to keep them."
    mirrored = of(storage="memory", mirror="s3://bucket/team/run")
    assert mirrored.startswith(f" Snapshots are in the memory {gone} s3://bucket/team/run has them, too. To continue")
    assert mirrored.endswith("helm install -n default kit CHART -f job.yaml --set resume=true")
    assert of(enabled=False) == ""
