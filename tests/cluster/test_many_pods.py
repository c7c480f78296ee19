"""A job of a thousand pods: what it takes to say how it is."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.state import derive
from kitctl.targets import Where, connect
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.target import ClusterTarget
from tests.cluster.commands import kitctl
from tests.cluster.kind.settings import KUBECONFIG
from tests.cluster.many import running

PODS = 1000


@pytest.mark.timeout(400)
def test_the_status_of_a_thousand_pods_takes_three_requests(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = connect(Where(tell=print, kubeconfig=KUBECONFIG))
    assert isinstance(target, ClusterTarget)
    with running(target.api, namespace, PODS):
        requests: list[str] = []
        send = Api._send

        def counted(api: Api, method: str, kind: str, *rest: Any, **options: Any) -> Any:
            requests.append(f"{method} {kind}")
            return send(api, method, kind, *rest, **options)

        monkeypatch.setattr(Api, "_send", counted)
        state = derive(target.job(namespace, "many"))
        assert (state.ready, len(state.places)) == (PODS, PODS)
        assert sorted(requests) == ["GET ConfigMap", "GET Job", "GET Pod"]

        page = kitctl("status", "many", f"--namespace={namespace}")
        assert len(page.splitlines()) < 20, "it fits a screen"
        assert f"{PODS} joining" in page
        assert len(kitctl("status", "many", f"--namespace={namespace}", "-o", "wide").splitlines()) > PODS
