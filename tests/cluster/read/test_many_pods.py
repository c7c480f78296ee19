"""A job of many pods: the requests that its status takes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kitctl.api.client import Client
from kitctl.state.phase import derive
from kitctl.targets.cluster.cluster_target import ClusterTarget
from kitctl.targets.cluster.connection.transport import Transport
from kitctl.targets.cluster.read import last_lines
from tests.cluster.commands import IDLE, job, kitctl
from tests.cluster.kind.settings import KUBECONFIG
from tests.cluster.kubectl import Object, get, until
from tests.cluster.many import running


@pytest.fixture
def target() -> ClusterTarget:
    target = Client(kubeconfig=KUBECONFIG).target
    assert isinstance(target, ClusterTarget)
    return target


@pytest.mark.wide
@pytest.mark.timeout(800)
@pytest.mark.parametrize("pods", [200, pytest.param(1000, marks=pytest.mark.long)])  # a minute of one core
def test_the_status_of_any_number_of_pods_takes_three_requests_and_a_few_logs(
    namespace: str, target: ClusterTarget, pods: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs are those of the latest pods that run and have not joined, as these never do."""
    with running(target.api, namespace, pods):
        requests = counted(monkeypatch)
        state = derive(target.job(namespace, "many"))
        assert (state.ready_nodes, len(state.nodes)) == (pods, pods)
        assert sorted(requests) == ["GET ConfigMap", "GET Job.batch", "GET Pod", *["GET Pod/log"] * last_lines.MOST]

        page = kitctl("status", "many", f"--namespace={namespace}")
        assert len(page.splitlines()) < 20, "it fits a screen"
        assert re.search(rf"^0-{pods - 1} +Joining", page, re.MULTILINE)
        assert len(kitctl("status", "many", f"--namespace={namespace}", "-o", "wide").splitlines()) > pods


def test_the_status_of_pods_without_a_machine_takes_four_requests(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the other kind; the fourth asks whether those before them were preempted."""
    kitctl("submit", *job("run", namespace, *IDLE, "--kind", "PyTorchJob"))
    until(lambda: any(map(has_no_machine, get(namespace, "pods")["items"])))
    requests = counted(monkeypatch)
    assert "PyTorchJob" in kitctl("status", "run", f"--namespace={namespace}")
    assert sorted(requests) == ["GET ConfigMap", "GET Event", "GET Pod", "GET PyTorchJob.kubeflow.org"]


def has_no_machine(pod: Object) -> bool:
    """Whether the scheduler has said that there is none for it."""
    return any(
        one["type"] == "PodScheduled" and one["status"] == "False" for one in pod["status"].get("conditions", [])
    )


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests from now on, as they are made."""
    requests: list[str] = []
    send = Transport._answer

    def send_and_count(transport: Transport, method: str, kind: str, path: str, *rest: Any, **options: Any) -> Any:
        requests.append(f"{method} {kind}" + "/log" * path.endswith("/log"))
        return send(transport, method, kind, path, *rest, **options)

    monkeypatch.setattr(Transport, "_answer", send_and_count)
    return requests
