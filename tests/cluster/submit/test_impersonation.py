"""A kubeconfig that names whom its user acts as: kitctl has that one's rights, and no others."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.commands import job, kitctl, until_status
from tests.cluster.kind.settings import KUBECONFIG
from tests.cluster.kubectl import get, kubectl
from tests.cluster.submit.test_refusals import kubeconfig_with

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RIGHTS = (
    "jobs.batch,pods,pods/log,pods/exec,configmaps,services,events,secrets,persistentvolumeclaims,serviceaccounts,"
    "networkpolicies.networking.k8s.io,roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io"
)
TOY = ("-m", "kittrain.workloads.toy", "10000", "--samples", "256", "--batch_size", "16", "--step-time", "0.1")


def test_a_user_who_acts_as_another_one_has_their_rights_alone(namespace: str, tmp_path: Path) -> None:
    known = json.loads(kubectl("config", "view", "--raw", "-o", "json", f"--kubeconfig={KUBECONFIG}"))
    acts_as = {"as": "ann", "as-groups": ["team", "system:authenticated"], "as-user-extra": {"ticket/nr": ["7", "8"]}}
    ann = partial(kitctl, kubeconfig=kubeconfig_with(known["users"][0]["user"] | acts_as, namespace, tmp_path))
    refused = ann("list", exit_code=1)
    assert 'User "ann" cannot list resource "jobs"' in refused

    kubectl("create", "role", "team", "-n", namespace, "--verb=*", f"--resource={RIGHTS}")
    kubectl("create", "rolebinding", "team", "-n", namespace, "--role=team", "--group=team")
    ann("submit", *job("run", namespace, *TOY))
    until_status("run", namespace, lambda state: state["worldSize"] == 1)
    claim = get(namespace, "pvc", "run-snapshots")
    assert "ann" in json.dumps(claim["metadata"]["annotations"]), "what it makes is hers"
    assert "rank 0 of 1" in ann("exec", "run", "--rank", "0", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    assert "run" in ann("list")
    assert ann("list", "-A", exit_code=1).endswith("where you have it: kitctl list -n NAMESPACE\n")
    ann("delete", "run", "-y")
    ann("delete", "run", "--snapshots", "-y")
    assert not get(namespace, "pvc")["items"]
