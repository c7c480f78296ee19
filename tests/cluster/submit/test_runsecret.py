"""The run's Secret, for each way to start a job. Applying the same objects twice makes two runs."""

from __future__ import annotations

import base64
import json

import pytest

from tests.cluster.commands import job as job_of
from tests.cluster.commands import kitctl, until_status
from tests.cluster.jobs import KINDS, Run, often, rendered
from tests.cluster.kubectl import get, kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SHORT = ("-m", "kittrain.workloads.toy", "1", "1", "--record", "/snapshots/record")
TWO = ("--nodes", "2", *SHORT)  # which know each other by the secret
OPEN = "this run has no secret"


def value(namespace: str, name: str = "run") -> str:
    """The value of the job's Secret; empty if it was not filled."""
    key: str = (get(namespace, "secret", f"{name}-rendezvous").get("data") or {}).get("key", "")
    return base64.b64decode(key).decode()


def trains_again(run: Run) -> bool:
    """Whether another run has completed."""
    return len(list(run.folder.glob(".finished-*"))) > 1


@pytest.mark.wide
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_manifests_applied_twice_are_two_runs_with_one_secret(namespace: str, kind: str) -> None:
    objects = rendered(namespace, kind, *TWO, name="run")
    run = Run(namespace=namespace, name="run", kind=kind)
    kubectl("apply", "-f", "-", given=objects)
    until(lambda: value(namespace))
    filled = value(namespace)
    assert len(filled) == 64
    assert filled not in objects
    kubectl("apply", "-f", "-", given=objects)
    assert value(namespace) == filled
    run.wait()
    assert OPEN not in run.logs()
    kubectl("delete", "-n", namespace, f"{KINDS[kind][0]}/run", "--cascade=foreground")  # the claim stays, and the rest
    kubectl("apply", "-f", "-", given=objects)
    run.wait()
    until(lambda: trains_again(run))
    assert "finished already" not in run.logs()
    assert value(namespace) == filled
    assert filled not in run.logs() + json.dumps(get(namespace, "configmap", "run-status"))


@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_a_submitted_job_has_its_secret_mounted(namespace: str, kind: str) -> None:
    output = kitctl("submit", *job_of("run", namespace, "--kind", kind, *SHORT))
    filled = value(namespace)
    assert len(filled) == 64
    resources = {resource for rule in get(namespace, "role", "run")["rules"] for resource in rule["resources"]}
    assert resources == {"configmaps"}
    assert kitctl("diff", *job_of("run", namespace, "--kind", kind, *SHORT)) == ""
    kitctl("wait", "run", "-n", namespace)
    logs = kitctl("logs", "run", "-n", namespace)
    assert OPEN not in logs
    assert filled not in output + logs
    kitctl("delete", "run", "-n", namespace)
    until(lambda: "run-rendezvous" not in kubectl("get", "secrets", "-n", namespace, "-o", "name"))


@pytest.mark.wide
def test_a_job_that_requires_a_secret_does_not_run_without(namespace: str) -> None:
    options = ("--set", "security.rendezvousSecret=require", "--set", "security.reportStatus=false", *SHORT)
    kubectl("apply", "-f", "-", given=rendered(namespace, "IndexedJob", *options, name="run"))
    until_status("run", namespace, lambda state: state["phase"] == "Failed")
    assert f"rendezvousSecret: require: {OPEN}" in kitctl("status", "run", "-n", namespace)
    kubectl("delete", "-n", namespace, "job/run", "--cascade=foreground")
    patch = json.dumps({"stringData": {"key": "a secret of the user's own"}})
    kubectl("patch", "-n", namespace, "secret/run-rendezvous", "--type=merge", "-p", patch)
    kubectl("apply", "-f", "-", given=rendered(namespace, "IndexedJob", *options, name="run"))
    Run(namespace=namespace, name="run", kind="IndexedJob").wait()
