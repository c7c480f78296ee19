"""The platform chart's roles have the rights that kitctl uses, and its values bind them to people by namespace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kitctl.kinds import KINDS
from kitctl.targets.cluster.checks import rights
from kitctl.targets.cluster.checks.rights import Right
from tests import fast_yaml
from tests.charts.helm import KUBERNETES, PLATFORM, helm, notes_of

Object = dict[str, Any]

IN_A_NAMESPACE: Final = rights.SUBMITTING + rights.AFTERWARDS + rights.QUEUEING
CHANGE: Final = "get list watch create update patch delete"
# What admins have besides: API group, resources, verbs.
ADMINISTERED: Final = (
    (
        "kueue.x-k8s.io",
        "clusterqueues cohorts localqueues resourceflavors topologies workloadpriorityclasses workloads",
        CHANGE,
    ),
    ("visibility.kueue.x-k8s.io", "clusterqueues/pendingworkloads", "get"),
    ("trainer.kubeflow.org", "clustertrainingruntimes trainingruntimes", CHANGE),
    ("", "persistentvolumeclaims limitranges resourcequotas", CHANGE),
    ("rbac.authorization.k8s.io", "rolebindings", CHANGE),
    ("", "namespaces", "get list watch"),
)
TEAM: Final[Object] = {
    "create": True,
    "podSecurity": "baseline",
    "labels": {"cost-centre": "7"},
    "roles": {"user": {"groups": ["team-a"], "serviceAccounts": ["ci/runner"]}, "admin": {"users": ["ada"]}},
    "sharedClaim": True,
    "queue": "training",
}
QUEUES: Final[Object] = {
    "flavors": {"default": None},
    "clusterQueues": {"training": {"quotas": {"default": {"pods": "4", "cpu": 8}}}},
}


def render(values: Object, *arguments: str) -> Any:
    command = ("template", "kit", str(PLATFORM), "--kube-version", KUBERNETES, "-f", "-", *arguments)
    return helm(*command, given={"trainingRuntimes": {"enabled": False}, **values})


def objects(*arguments: str, **values: Any) -> dict[str, Object]:
    """The chart's objects, but for runtimes, by kind, namespace and name."""
    done = render(values, *arguments)
    assert done.returncode == 0, done.stderr
    found = [one for one in fast_yaml.load_all(done.stdout) if one]
    return {"/".join(filter(None, (one["kind"], *_where(one["metadata"])))): one for one in found}


def _where(metadata: Object) -> tuple[str, str]:
    return metadata.get("namespace", ""), metadata["name"]


def refusal(**values: Any) -> str:
    done = render(values)
    assert done.returncode != 0, done.stdout
    return str(done.stderr)


def granted(role: Object) -> set[Right]:
    assert not [rule for rule in role["rules"] if "*" in str(rule) or "resourceNames" in rule]
    return {
        Right(verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_users_have_exactly_the_rights_that_kitctl_uses() -> None:
    found = objects()
    assert granted(found["ClusterRole/kitctl-user"]) == rights.of(IN_A_NAMESPACE, KINDS.values())
    assert granted(found["ClusterRole/kitctl-cluster-reader"]) == rights.of(rights.CLUSTER_WIDE, ())
    assert granted(found["Role/kube-system/kitctl-cluster-reader"]) == {Right("list", "", "pods")}


def test_admins_have_these_and_what_the_chart_installs() -> None:
    used = rights.of(IN_A_NAMESPACE + rights.CLUSTER_WIDE, KINDS.values())
    own = {
        Right(verb, group, resource)
        for group, resources, verbs in ADMINISTERED
        for resource in resources.split()
        for verb in verbs.split()
    }
    assert granted(objects()["ClusterRole/kitctl-admin"]) == used | own


def test_nobody_has_a_role_by_default_and_nothing_else_is_installed() -> None:
    roles = {"ClusterRole/kitctl-user", "ClusterRole/kitctl-admin", "ClusterRole/kitctl-cluster-reader"}
    assert objects().keys() == {*roles, "Role/kube-system/kitctl-cluster-reader"}
    assert objects(roles={"enabled": False}) == {}


def test_roles_of_a_namespace_and_of_the_cluster() -> None:
    found = objects(namespaces={"team-a": TEAM, "team-b": None}, roles={"admin": {"groups": ["platform"]}})
    user = found["RoleBinding/team-a/kitctl-user"]
    assert (user["roleRef"]["kind"], user["roleRef"]["name"]) == ("ClusterRole", "kitctl-user")
    assert names(user["subjects"]) == ["Group team-a", "ServiceAccount ci/runner"]
    assert names(found["RoleBinding/team-a/kitctl-admin"]["subjects"]) == ["User ada"]
    assert names(found["ClusterRoleBinding/kitctl-admin"]["subjects"]) == ["Group platform"]
    everybody = ["Group platform", "Group team-a", "ServiceAccount ci/runner", "User ada"]
    for where in ("ClusterRoleBinding", "RoleBinding/kube-system"):
        assert sorted(names(found[f"{where}/kitctl-cluster-reader"]["subjects"])) == everybody
    assert found["RoleBinding/kube-system/kitctl-cluster-reader"]["roleRef"]["kind"] == "Role"
    assert "ClusterRoleBinding/kitctl-user" not in found


def test_pods_read_nodes_only_where_a_namespace_says_so() -> None:
    found = objects(namespaces={"team-a": {"nodeTaints": True}, "team-b": {"nodeTaints": False}, "team-c": None})
    assert granted(found["ClusterRole/kitctl-node-taints"]) == rights.of(rights.OF_PODS, ())
    binding = found["ClusterRoleBinding/kitctl-node-taints"]
    assert binding["roleRef"]["name"] == "kitctl-node-taints"
    assert names(binding["subjects"]) == ["Group system:serviceaccounts:team-a"]
    assert not [key for key in objects(namespaces={"team-b": {"nodeTaints": False}}) if "node-taints" in key]


def names(subjects: Iterable[Object]) -> list[str]:
    return [f"{one['kind']} {'/'.join(filter(None, (one.get('namespace'), one['name'])))}" for one in subjects]


def test_what_users_may_not_read_and_whom_kubernetes_lets_in() -> None:
    found = objects(namespaces={"team-a": TEAM}, roles={"readCluster": False, "aggregateToEdit": True})
    assert not [key for key in found if "Binding" in key and "cluster-reader" in key]
    label = "rbac.authorization.k8s.io/aggregate-to-edit"
    assert [key for key, one in found.items() if label in one["metadata"]["labels"]] == ["ClusterRole/kitctl-user"]


def test_the_notes_name_what_gives_the_cluster_away(tmp_path: Path) -> None:
    show = notes_of(PLATFORM, tmp_path)

    def notes(**values: Any) -> str:
        return show({"trainingRuntimes": {"enabled": False}, **values})

    given = notes(roles={"admin": {"users": ["ada"]}}, namespaces={"a": {"create": True, "podSecurity": "privileged"}})
    assert "Whoever may submit jobs in namespace a can be root on the cluster's machines" in given
    assert "Whoever has roles.admin can have all rights in the cluster" in given
    assert notes(namespaces={"a": {"create": True}}) == "Jobs in namespace a: kitctl submit -n a --nodes 2"


def test_another_release_has_names_of_its_own() -> None:
    found = objects(namePrefix="other", namespaces={"team-a": TEAM}, roles={"admin": {"users": ["ada"]}})
    assert not [key for key in found if "kitctl-" in key and not key.endswith("kitctl-shared")]
    assert found["RoleBinding/team-a/other-user"]["roleRef"]["name"] == "other-user"
    done = render({"namePrefix": "other", "trainingRuntimes": {"enabled": True}})
    assert "name: other-submit-elastic" in done.stdout


@pytest.mark.parametrize("level", ["", "privileged", "baseline", "restricted"])
def test_a_namespace_that_it_makes_has_a_pod_security_level(level: str) -> None:
    """Whoever may create pods where there is none may create one that is root on its machine."""
    found = objects(namespaces={"team-a": {"create": True} | ({"podSecurity": level} if level else {})})
    labels = found["Namespace/team-a"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == (level or "restricted")


def test_what_jobs_run_on_outlives_the_release() -> None:
    found = objects(namespaces={"team-a": TEAM, "team-b": {"sharedClaim": True}})
    namespace, claim = found["Namespace/team-a"], found["PersistentVolumeClaim/team-b/kitctl-shared"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert namespace["metadata"]["labels"]["cost-centre"] == "7"
    for one in (namespace, claim, found["PersistentVolumeClaim/team-a/kitctl-shared"]):
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "100Gi"}}}
    assert "Namespace/team-b" not in found


def test_a_claim_as_the_cluster_wants_it() -> None:
    given = {"name": "runs", "size": "1Ti", "storageClass": "nfs", "accessModes": ["ReadWriteOnce"], "keep": False}
    found = objects(namespaces={"team-a": {"sharedClaim": True}}, sharedClaim=given)
    claim = found["PersistentVolumeClaim/team-a/runs"]
    assert claim["spec"]["storageClassName"] == "nfs"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert "annotations" not in claim["metadata"]


def test_a_queue_of_a_namespace() -> None:
    found = objects(namespaces={"team-a": TEAM, "team-b": {}}, queues=QUEUES | {"priorities": {"high": 9}})
    assert found["LocalQueue/team-a/training"]["spec"] == {"clusterQueue": "training"}
    spec = found["ClusterQueue/training"]["spec"]
    assert spec["namespaceSelector"]["matchExpressions"][0]["values"] == ["team-a"]
    (group,) = spec["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "pods"]
    quotas = [{"name": "cpu", "nominalQuota": 8}, {"name": "pods", "nominalQuota": "4"}]
    assert group["flavors"] == [{"name": "default", "resources": quotas}]
    assert found["ResourceFlavor/default"]["spec"] == {}
    assert found["WorkloadPriorityClass/high"]["value"] == 9


def test_a_queue_that_is_there_already() -> None:
    found = objects(namespaces={"team-a": {"queue": "theirs"}})
    assert found["LocalQueue/team-a/theirs"]["spec"] == {"clusterQueue": "theirs"}
    assert not [key for key in found if key.startswith(("ClusterQueue", "ResourceFlavor"))]


@pytest.mark.parametrize(
    ("served", "version", "field"),
    [
        (["v1beta1"], "v1beta1", "cohort"),
        (["v1beta1", "v1beta2"], "v1beta2", "cohortName"),
        ([], "v1beta2", "cohortName"),
    ],
)
def test_queues_have_the_version_of_the_cluster(served: list[str], version: str, field: str) -> None:
    queues = {"clusterQueues": {"training": {"cohort": "all", "quotas": {"default": {"cpu": 8}}}}}
    options = [word for one in served for word in ("--api-versions", f"kueue.x-k8s.io/{one}")]
    queue = objects(*options, queues=queues)["ClusterQueue/training"]
    assert "namespaceSelector" not in queue["spec"], "Kueue refuses an empty list of namespaces"
    assert queue["apiVersion"] == f"kueue.x-k8s.io/{version}"
    assert queue["spec"][field] == "all"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"namespaces": {"team-a": {"podSecurity": "baseline"}}}, "fix: set create=true for a new namespace, or use"),
        ({"namespaces": {"team-a": {"podSecurity": "strict", "create": True}}}, "podSecurity"),
        ({"namespaces": {"team-a": {"podSecurity": "", "create": True}}}, "podSecurity"),
        (
            {"namespaces": {"a": {"create": True, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}},
            "namespaces.a: labels has its Pod Security level; fix: write podSecurity: privileged",
        ),
        (
            {"roles": {"user": {"groups": ["all"]}}},
            "fix: bind it in the namespaces that run jobs: namespaces.NAME.roles",
        ),
        *(
            ({"namespaces": {name: given}}, f"namespaces.{name}: it runs the cluster's own pods, whose rights")
            for name in ("kube-system", "kube-public", "kube-node-lease")
            for given in ({}, {"roles": {"user": {"users": ["ada"]}}}, {"sharedClaim": True})
        ),
        ({"namespaces": {"Team": {}}}, "Team"),
        ({"namespaces": {"team-a": {"user": {}}}}, "additional properties 'user' not allowed"),
        ({"namespaces": {"team-a": {"roles": {"user": {"serviceAccounts": ["runner"]}}}}}, "serviceAccounts"),
        ({"namespaces": {"team-a": {"roles": {"user": {"groups": "team-a"}}}}}, "want array"),
        ({"namespaces": {"a": {"queue": "gpu"}}, "queues": QUEUES}, "fix: name one of training"),
        (
            {"queues": {"clusterQueues": {"training": {"quotas": {"a": {"cpu": 1}, "b": {"cpu": 1, "pods": 1}}}}}},
            "training.quotas: a and b have other resources; fix: give each of cpu, pods a quota, 0 for none",
        ),
        ({"sharedClaim": {"accessModes": ["ReadWriteSometimes"]}}, "accessModes"),
    ],
    ids=str,
)
def test_values_that_cannot_work_are_rejected_with_the_reason(values: Object, message: str) -> None:
    assert message in refusal(**values)


def test_the_example_of_the_guide_is_complete() -> None:
    page = (PLATFORM.parents[1] / "docs" / "platform.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n# platform.yaml\n(.*?)```", page, re.DOTALL)
    found = objects(**yaml.safe_load(example))
    assert found.keys() >= {
        *("Namespace/vision", "RoleBinding/vision/kitctl-user", "ClusterRoleBinding/kitctl-admin"),
        *("PersistentVolumeClaim/vision/kitctl-shared", "LocalQueue/vision/training", "ClusterQueue/training"),
        *("ResourceFlavor/h100", "WorkloadPriorityClass/urgent"),
    }


@pytest.mark.parametrize("part", ["namespaces", "roles", "queues", "sharedClaim"])
def test_a_section_with_nothing_in_it_is_none(part: str) -> None:
    found = objects(**{part: None})
    assert ("ClusterRole/kitctl-user" in found) is (part != "roles")
