"""The chart on a cluster: its objects are accepted, and a release is tested, scaled, uninstalled and reinstalled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.kinds import of_object
from kitctl.render import objects as render
from tests.charts.helm import CHART, helm, rendered
from tests.cluster.jobs import FIXED, KINDS, SCALABLE, Run
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import TORCH_IMAGE
from tests.cluster.kubectl import Object, get, kubectl, until
from tests.cluster.toy import EPOCHS, ORDER, assert_complete_and_exact
from tests.exact import committed
from tests.kitctl.render.test_objects import ACCEPTED, GOLDEN, LIMITS, SOURCES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

TOY: Final = (
    *(str(EPOCHS), "1", "--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch)),
    *("--record", "/snapshots/record"),
)
SLOW: Final = (*TOY, "--step-time", "0.5")
# Objects that every namespace has.
ALWAYS_THERE: Final = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


# Of other kinds than the default those cases that have a golden file: what else differs is not the pods.
CASES: Final = [
    pytest.param(*one, marks=() if one in GOLDEN or one in LIMITS else pytest.mark.long) for one in ACCEPTED + LIMITS
]


@pytest.mark.parametrize(("case", "kind"), CASES, ids=lambda value: getattr(value, "stem", value))
def test_the_server_accepts_a_case(empty_namespace: str, case: Path, kind: str) -> None:
    """As the chart renders it; tests/charts shows that kitctl's objects are equal."""
    spec = specfile.build(JobRequest(file=case, flags={"kind": kind, "namespace": empty_namespace}))
    sources = SOURCES if spec.script == "train.py" else {}
    objects = rendered("-f", str(case), "--set", f"kind={kind},namespace={empty_namespace}", given={"sources": sources})
    accepted = kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", given=render.to_json(objects))
    assert len(accepted.splitlines()) == len(objects)


@pytest.mark.parametrize("kind", [pytest.param("IndexedJob", marks=pytest.mark.long), "PyTorchJob"])
def test_a_release_is_tested_scaled_uninstalled_and_reinstalled(namespace: str, kind: str) -> None:
    run = installed(namespace, kind, scale=1, args=SLOW)
    assert "nodes: 1, ranks: 1" in run_helm(namespace, "test", "run")
    secret = get(namespace, "secret", "run-rendezvous")["data"]["key"]
    upgraded(namespace, "scale=2")
    assert get(namespace, "secret", "run-rendezvous")["data"]["key"] == secret, "the new node has the same secret"
    until(lambda: len(run.report()["nodes"]) == 2)
    assert "nodes: 2, ranks: 2" in run_helm(namespace, "test", "run")
    until(lambda: run.step() > ORDER.steps_per_epoch)
    run_helm(namespace, "uninstall", "run", "--wait", "--cascade", "foreground")
    until(lambda: left_in(namespace) == {"persistentvolumeclaim/run-snapshots"})
    before = run.generation()
    installed(namespace, kind, resume=True, args=TOY)
    assert_complete_and_exact(run)
    generations = {entry.generation for entry in committed(run.folder)}
    assert min(generations) <= before < max(generations), "the ranks of both releases took steps"


@pytest.mark.long
@pytest.mark.parametrize("kind", FIXED)
def test_a_release_of_a_fixed_size_is_uninstalled_and_reinstalled(namespace: str, kind: str) -> None:
    run = installed(namespace, kind, args=SLOW)
    assert "nodes: 2, ranks: 2" in run_helm(namespace, "test", "run")
    assert f"the number of nodes of a {kind} cannot be changed" in upgrade_refused(namespace, "scale=1")
    assert "its pods would change" in upgrade_refused(namespace, "backend=gloo")
    until(lambda: run.step() > 1)
    run_helm(namespace, "uninstall", "run", "--wait", "--cascade", "foreground")
    until(lambda: left_in(namespace) == {"persistentvolumeclaim/run-snapshots"})
    installed(namespace, kind, resume=True, args=TOY)
    assert_complete_and_exact(run)


@pytest.mark.parametrize("kind", SCALABLE)
def test_an_upgrade_may_change_settings_outside_the_pods(namespace: str, kind: str) -> None:
    run = installed(namespace, kind, args=TOY, scheduling={"queue": "research", "nodeSelector": {"no": "machine"}})
    job = live(run)
    assert of_object(job).suspended(job), "until its queue releases it"
    release(run)
    assert "scale: 3 is outside nodes, 1:2; fix: give 1 to 2" in upgrade_refused(namespace, "scale=3")
    output = upgrade_refused(namespace, "backend=gloo")
    assert "its pods would change, and those of a job that is there cannot (scale can); fix: helm uninstall" in output
    upgraded(namespace, "scale=1,policy.ttl=1h,policy.deadline=1h,policy.backoffLimit=5,keepSnapshots=false")
    job = live(run)
    assert (of_object(job).desired_nodes(job), of_object(job).suspended(job)) == (1, False)
    run_helm(namespace, "uninstall", "run", "--wait", "--cascade", "foreground")
    until(lambda: left_in(namespace) == set())


def installed(namespace: str, kind: str, **values: Any) -> Run:
    """An elastic job as a release."""
    command = ["-m", "kittrain.workloads.toy"]
    given = {"kind": kind, "image": pushed(TORCH_IMAGE), "nodes": "1:2", "command": command, **values}
    run_helm(namespace, "install", "run", str(CHART), "-f", "-", given=given)
    return Run(namespace=namespace, name="run", kind=kind)


def live(run: Run) -> Object:
    """The job on the cluster."""
    return get(run.namespace, KINDS[run.kind][0], run.name)


def release(run: Run) -> None:
    """Resume a suspended job, as Kueue would."""
    patch = json.dumps(of_object(live(run)).suspend(suspended=False))
    kubectl("patch", "-n", run.namespace, f"{KINDS[run.kind][0]}/{run.name}", "--type=merge", "-p", patch)


def upgraded(namespace: str, setting: str) -> None:
    """Upgrade the release with one changed value."""
    run_helm(namespace, "upgrade", "run", str(CHART), "--reuse-values", "--set", setting)


def upgrade_refused(namespace: str, setting: str) -> str:
    """The message for an upgrade that helm refuses."""
    done = helm("upgrade", "-n", namespace, "run", str(CHART), "--reuse-values", "--set", setting)
    assert done.returncode != 0, done.stdout
    return done.stderr


def run_helm(namespace: str, *arguments: str, given: dict[str, Any] | None = None) -> str:
    """Output of helm."""
    done = helm(*arguments, "-n", namespace, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def left_in(namespace: str) -> set[str]:
    """The objects in a namespace, without those that every namespace has."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    lasting = ",".join(kind for kind in kinds if not kind.startswith("events"))
    items = json.loads(kubectl("get", lasting, "-n", namespace, "-o", "json"))["items"]
    return {f"{item['kind']}/{item['metadata']['name']}".lower() for item in items} - ALWAYS_THERE
