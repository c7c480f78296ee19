"""The platform chart: its runtimes configure pods as kitctl's own objects do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from kitctl.base import names
from kitctl.kinds import KINDS, train_job
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kittrain.agent import torchrun
from kittrain.job import env
from kittrain.system.child_processes import SUPERVISOR
from tests import fast_yaml
from tests.charts.helm import KUBERNETES, PLATFORM, helm

COMMON = ("completionMode", "backoffLimit", "podReplacementPolicy", "podFailurePolicy")
PODS = ("restartPolicy", "enableServiceLinks", "terminationGracePeriodSeconds")
RENDER = ("template", "kit-platform", str(PLATFORM), "--kube-version", KUBERNETES)


def rendered(*arguments: str) -> list[dict[str, Any]]:
    done = helm(*RENDER, *arguments)
    assert done.returncode == 0, done.stderr
    return [one for one in fast_yaml.load_all(done.stdout) if one]


def runtimes(*arguments: str) -> dict[str, dict[str, Any]]:
    found = rendered(*arguments)
    return {one["metadata"]["name"]: one for one in found if one["kind"] == "ClusterTrainingRuntime"}


def job_of(runtime: dict[str, Any]) -> dict[str, Any]:
    (nodes,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert nodes["name"] == KINDS["TrainJob"].container
    job: dict[str, Any] = nodes["template"]["spec"]
    return job


@pytest.fixture(scope="module")
def installed() -> dict[str, dict[str, Any]]:
    return runtimes()


def renamed(policy: Any) -> Any:
    """What an Indexed Job has, for the container's name in a TrainJob."""
    return yaml.safe_load(yaml.safe_dump(policy).replace("containerName: pytorch", "containerName: node"))


@pytest.mark.parametrize("name", [train_job.RUNTIME, train_job.ELASTIC_RUNTIME, train_job.PLAIN_RUNTIME])
def test_a_runtime_configures_its_pods_as_an_indexed_job_does(installed: dict[str, dict[str, Any]], name: str) -> None:
    job, own = job_of(installed[name]), render.manifests(JobSpec(name="job"))[-1]["spec"]
    assert {key: job[key] for key in COMMON} == renamed({key: own[key] for key in COMMON})
    pod, template = job["template"]["spec"], own["template"]["spec"]
    assert {key: pod[key] for key in PODS} == {key: template[key] for key in PODS}
    prerequisite = KINDS["TrainJob"].prerequisite
    assert prerequisite
    assert installed[name]["metadata"]["labels"][prerequisite.label] == prerequisite.version


@pytest.mark.parametrize(
    ("image", "mirror", "expected"),
    [
        ("", "", train_job.NO_IMAGE),
        ("", "registry.example/hub", train_job.NO_IMAGE),
        ("team/torch:3", "", "team/torch:3"),
        ("team/torch:3", "registry.example/hub/", "registry.example/hub/team/torch:3"),
        ("ghcr.io/team/torch:3", "registry.example/hub", "ghcr.io/team/torch:3"),
    ],
)
def test_the_runtimes_of_submit_have_the_platforms_image(image: str, mirror: str, expected: str) -> None:
    """As ``namespace_defaults`` has it, of a namespace."""
    installed = runtimes("--set", f"defaults.image={image},defaults.mirror={mirror}")
    for name in (train_job.RUNTIME, train_job.ELASTIC_RUNTIME):
        (container,) = job_of(installed[name])["template"]["spec"]["containers"]
        assert container["image"] == expected
        found = KINDS["TrainJob"].runtimes_image(installed[name])
        assert found == ("" if expected == train_job.NO_IMAGE else expected)


def test_an_elastic_job_ends_with_node_0(installed: dict[str, dict[str, Any]]) -> None:
    assert job_of(installed[train_job.ELASTIC_RUNTIME])["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert "successPolicy" not in job_of(installed[train_job.RUNTIME])


def test_the_agent_of_a_handwritten_job_has_all_variables(installed: dict[str, dict[str, Any]]) -> None:
    """With the variables that Trainer's torch plugin adds, as Kubernetes expands them."""
    (container,) = job_of(installed[train_job.PLAIN_RUNTIME])["template"]["spec"]["containers"]
    assert container["command"] == ["tini", "--", *names.PYTHON, names.AGENT, "--"]
    fields = {
        "metadata.labels['jobset.sigs.k8s.io/jobset-name']": "five",
        "metadata.labels['jobset.sigs.k8s.io/jobset-uid']": "the-uid",
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": "1",
        "metadata.namespace": "team",
        "metadata.name": "five-node-0-1-abcde",
        "spec.nodeName": "machine",
        "status.podIP": "10.0.0.3",
    }
    values: dict[str, str] = {}
    for one in container["env"]:
        text = one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for known, value in values.items():
            text = text.replace(f"$({known})", value)
        values[one["name"]] = text
    node = env.node_env(values | {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1"})
    assert (node.job.name, node.job.namespace, node.run_id, node.node_index) == ("five", "team", "the-uid", 1)
    assert (node.job.min_nodes, node.job.max_nodes, node.procs_per_node) == (2, 2, 1)
    assert (node.run.secret_file, node.run.secret_name) == ("", ""), "it warns: nobody makes a secret"
    assert torchrun.is_node(values), "a job that replaces the command by torchrun gets the agent, too"
    assert f" {SUPERVISOR} " in container["lifecycle"]["preStop"]["exec"]["command"][-1]
    host = KINDS["TrainJob"].dns_name("five", 0)
    assert (node.run.rendezvous_host, node.run.rendezvous_port) == (f"{host}.team.svc", 29400)
    assert (str(node.snapshot_dir), node.grace_seconds) == ("/snapshots", train_job.GRACE_SECONDS)


def test_a_claim_for_each_job_by_hand_unless_declined(installed: dict[str, dict[str, Any]]) -> None:
    plain = installed[train_job.PLAIN_RUNTIME]["spec"]["template"]["spec"]
    (policy,) = plain["volumeClaimPolicies"]
    assert policy["templates"][0]["metadata"]["name"] == train_job.PLAIN_CLAIM
    assert policy["retentionPolicy"] == {"whenDeleted": "Delete"}, "or no second job could have the name"
    kept = runtimes("--set", "trainingRuntimes.snapshots.keep=true")[train_job.PLAIN_RUNTIME]
    assert "whenDeleted: Retain" in yaml.safe_dump(kept)
    without = runtimes("--set", "trainingRuntimes.snapshots.enabled=false")[train_job.PLAIN_RUNTIME]
    assert "volumeClaimPolicies" not in without["spec"]["template"]["spec"]
    assert "KIT_SNAPSHOT_DIR" not in yaml.safe_dump(without)


def test_without_trainer_nothing_is_installed() -> None:
    assert runtimes("--set", "trainingRuntimes.enabled=false") == {}


METRICS = ("--set", "metrics.podMonitor.enabled=true", "--set", "metrics.dashboard.enabled=true")


def monitoring(*arguments: str) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in rendered(*arguments) if one["metadata"]["name"].endswith("-training")}


def test_the_monitoring_is_that_of_the_files() -> None:
    found = monitoring(*METRICS)
    file = yaml.safe_load((PLATFORM / "files" / "podmonitor.yaml").read_text())
    assert found["PodMonitor"]["spec"] == file["spec"]
    assert {key: file[key] for key in ("apiVersion", "kind")}.items() <= found["PodMonitor"].items()
    dashboard = json.loads((PLATFORM / "files" / "dashboard.json").read_text())
    assert json.loads(found["ConfigMap"]["data"]["kitctl-training.json"]) == dashboard
    assert found["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_dashboard_is_what_grafanas_own_schema_says() -> None:
    register_default_plugins()
    ours = json.loads((PLATFORM / "files" / "dashboard.json").read_text())
    theirs = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(ours)))
    assert {one["type"] for one in ours["panels"]} == {"timeseries"}, "whose options are checked, too"
    assert [*differences(ours, theirs)] == []


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Where a dashboard is not the same once it was read and written by its schema, but for values that it adds.

    A part that it adds is one that Grafana asks for, and would otherwise lay out in its own way, or not show.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        yield from (f"{at}.{key} is unknown" for key in ours.keys() - theirs.keys())
        yield from (
            f"{at}.{key} is missing"
            for key in theirs.keys() - ours.keys()
            if isinstance(theirs[key], dict) and theirs[key]
        )
        for key in ours.keys() & theirs.keys():
            yield from differences(ours[key], theirs[key], f"{at}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{at}[{index}]")
    elif ours != theirs:
        yield f"{at} is {ours!r}, and not {theirs!r}"


def test_there_is_no_monitoring_unless_asked() -> None:
    assert monitoring() == {}
    assert set(monitoring("--set", "metrics.dashboard.enabled=true")) == {"ConfigMap"}
    assert set(monitoring("--set", "metrics=null")) == set(), "as in a release that was made before it could have any"


def test_what_selects_the_monitoring_may_be_set() -> None:
    more = ("--set", "metrics.podMonitor.labels.release=prom", "--set", "metrics.podMonitor.interval=5s")
    monitor = monitoring(*METRICS, *more, "--set", "namePrefix=canary")["PodMonitor"]
    assert monitor["metadata"]["name"] == "canary-training"
    assert monitor["metadata"]["labels"]["release"] == "prom"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint.get("scrapeTimeout")) == ("5s", None), "a longer time-out is refused"


@pytest.mark.parametrize("value", ["interval=often", "labels.release=1", "enable=true"])
def test_monitoring_that_nothing_could_use_is_refused(value: str) -> None:
    done = helm(*RENDER, *METRICS, "--set", f"metrics.podMonitor.{value}")
    assert done.returncode != 0
    assert "podMonitor" in done.stderr


def test_a_mistyped_value_is_refused() -> None:
    done = helm(*RENDER, "--set", "trainingRuntime.enabled=false")
    assert done.returncode != 0
    assert "trainingRuntime" in done.stderr
