"""A job of a thousand pods: what it takes to say how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kitctl.state import derive
from kitctl.targets import Where, connect
from kitctl.targets.cluster.api import Api
from tests.cluster.commands import kitctl
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUBECONFIG, TRAINER_IMAGE
from tests.cluster.kubectl import kubectl, until
from tests.cluster.kwok import NODE_SELECTOR, TOLERATIONS, fake_nodes

PODS = 1000


@pytest.mark.timeout(400)
def test_the_status_of_a_thousand_pods_takes_three_requests(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selectors = [f"--selector={key}={value}" for key, value in NODE_SELECTOR.items()]
    tolerations = [f"--toleration={one['key']}:{one['effect']}" for one in TOLERATIONS]
    with fake_nodes(10, namespace, tmp_path / "kwok.log"):
        kitctl(
            *("submit", "--name=many", f"--namespace={namespace}", f"--nodes={PODS}", *selectors, *tolerations),
            *("--set=snapshots.enabled=false", "--set=scheduling.spread=none", f"--image={pushed(TRAINER_IMAGE)}"),
        )
        running = ("pods", "-n", namespace, "--field-selector=status.phase=Running", "--no-headers")
        until(lambda: len(kubectl("get", *running).splitlines()) == PODS, seconds=240)

        requests: list[str] = []
        send = Api._send

        def counted(api: Api, method: str, kind: str, *rest: Any, **options: Any) -> Any:
            requests.append(f"{method} {kind}")
            return send(api, method, kind, *rest, **options)

        monkeypatch.setattr(Api, "_send", counted)
        state = derive(connect(Where(tell=print, kubeconfig=KUBECONFIG)).job(namespace, "many"))
        assert (state.ready, len(state.places)) == (PODS, PODS)
        assert sorted(requests) == ["GET ConfigMap", "GET Job", "GET Pod"]

        page = kitctl("status", "many", f"--namespace={namespace}")
        assert len(page.splitlines()) < 20, "it fits a screen"
        assert f"{PODS} joining" in page
        assert len(kitctl("status", "many", f"--namespace={namespace}", "-o", "wide").splitlines()) > PODS
