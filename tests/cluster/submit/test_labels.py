"""Labels of a job, where a policy of the cluster requires one of every object that people make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.commands import IDLE, job, kitctl
from tests.cluster.kind.steps import works
from tests.cluster.kubectl import apply, get, kubectl, until
from tests.cluster.submit.test_submit import left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REQUIRED = "'team' in object.metadata.?labels.orValue({})"
KINDS = (
    "jobs,pods,services,secrets,configmaps,persistentvolumeclaims,networkpolicies,roles,rolebindings,serviceaccounts"
)


@pytest.fixture
def _policy(namespace: str) -> Iterator[None]:
    """Jobs and pods without the label are refused in this namespace."""
    admission = "admissionregistration.k8s.io/v1"
    rules = [
        {"apiGroups": ["", "batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs", "pods"]}
    ]
    denies = {"expression": REQUIRED, "message": "every workload needs the label team"}
    apply(
        namespace,
        {
            "apiVersion": admission,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": namespace},
            "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [denies]},
        },
        {
            "apiVersion": admission,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": namespace},
            "spec": {
                "policyName": namespace,
                "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                },
            },
        },
    )
    until(lambda: not works("kubectl", "run", "probe", "-n", namespace, "--image=x", "--dry-run=server"))
    yield
    kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", namespace)


@pytest.mark.usefixtures("_policy")
def test_a_policy_that_requires_a_label_is_met_by_one_flag(namespace: str) -> None:
    refused = kitctl("submit", *job("run", namespace, *IDLE), exit_code=2)
    assert "every workload needs the label team" in refused
    assert "labels and annotations are keys of a job" in refused
    assert left(namespace) == set()
    kitctl("submit", *job("run", namespace, "--label", "team=vision", *IDLE))
    until(lambda: get(namespace, "pods")["items"])
    made = kubectl("get", KINDS, "-n", namespace, "-o", "name", "-l", "app.kubernetes.io/instance=run").split()
    assert made == kubectl("get", KINDS, "-n", namespace, "-o", "name", "-l", "team=vision").split()
    assert {one.partition("/")[0] for one in made} >= {"job.batch", "pod", "service", "secret"}
