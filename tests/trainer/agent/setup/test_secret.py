"""The run's secret: mounted, shared through the API server, or missing, which is a warning."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kittrain.agent.setup.secret import run_secret
from kittrain.job.env import NodeEnv, node_env
from kittrain.job.variables import EnvError
from kittrain.system import apiserver
from kittrain.system.apiserver import ApiError
from tests.trainer.kubernetes import ApiServer

SECRET = "/api/v1/namespaces/team/secrets/run-rendezvous"
TIMEOUT = 60  # seconds


def node(**env: str) -> NodeEnv:
    return node_env({"PET_RDZV_ENDPOINT": "node-0:29400", **env})


def read_secret(env: NodeEnv, account: Path) -> tuple[bytes | None, list[str]]:
    logged: list[str] = []
    return run_secret(env, logged.append, apiserver.ApiServer(account=account)), logged


def test_a_mounted_secret_is_used_without_the_server(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n")
    env = node(KIT_SECRET_FILE=str(file), KIT_SECRET_NAME="run-rendezvous")
    assert read_secret(env, tmp_path) == (b"0123456789abcdef", [])


def test_an_invalid_mounted_secret_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("short\n")
    with pytest.raises(EnvError, match="5 bytes; a secret needs at least 16"):
        read_secret(node(KIT_SECRET_FILE=str(file)), tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(EnvError, match="Is a directory"):
        read_secret(node(KIT_SECRET_FILE=str(file)), tmp_path)


def test_all_nodes_share_the_secret_that_one_of_them_generated(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "RETRY_TIMEOUT", 0.0)  # that another one was faster is no failure
    server.objects[SECRET] = {"metadata": {"resourceVersion": "7"}}
    all_have_read = threading.Barrier(4)
    readers = threading.local()

    def at_once(method: str, _path: str) -> None:
        if method == "PATCH" and not getattr(readers, "waited", False):
            readers.waited = True  # each connection has its own thread
            all_have_read.wait(TIMEOUT)

    server.before = at_once
    env = [
        node(KIT_NODE_INDEX=str(index), KIT_SECRET_NAME="run-rendezvous", KIT_SECRET_FILE=str(tmp_path / "absent"))
        for index in range(4)
    ]
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda one: read_secret(one, tmp_path), env))
    ((secret, logged),) = {(secret, tuple(logged)) for secret, logged in found}
    assert secret == base64.b64decode(server.objects[SECRET]["data"]["key"])
    assert len(secret) == 64
    assert logged == ()
    assert server.objects[SECRET]["metadata"]["resourceVersion"] == "8"


@pytest.mark.parametrize(("status", "why"), [(403, "HTTP status 403"), (404, "HTTP status 404")])
def test_without_the_right_to_it_there_is_a_warning(server: ApiServer, tmp_path: Path, status: int, why: str) -> None:
    server.objects[SECRET] = {}
    server.status = status
    found, logged = read_secret(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)
    assert found is None
    assert len(logged) == 1
    assert "warning: this run has no secret: anyone who can reach port 29400 of node 0" in logged[0]
    assert why in logged[0]
    assert read_secret(node(KIT_SECRET_NAME="run-rendezvous", KIT_NODE_INDEX="1"), tmp_path) == (None, [])


def test_without_an_account_there_is_a_warning_or_an_error_if_required(tmp_path: Path) -> None:
    found, logged = read_secret(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)
    assert found is None
    assert "no service account token" in logged[0]
    with pytest.raises(EnvError, match="rendezvousSecret: require: this run has no secret"):
        read_secret(node(KIT_SECURITY_RENDEZVOUS_SECRET="require", KIT_NODE_INDEX="1"), tmp_path)


def test_a_server_that_does_not_answer_is_retried_and_then_an_error(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "RETRY_INTERVAL", 0.01)
    server.objects[SECRET] = {"data": {"key": base64.b64encode(b"0123456789abcdef").decode()}}
    env: list[str] = []

    def recover(method: str, _path: str) -> None:
        env.append(method)
        server.status = 200 if len(env) > 2 else 503

    server.before = recover
    assert read_secret(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path) == (b"0123456789abcdef", [])
    assert env == ["GET"] * 3
    monkeypatch.setattr(apiserver, "RETRY_TIMEOUT", 0.0)
    server.before = lambda *_: setattr(server, "status", 503)
    with pytest.raises(ApiError, match="HTTP status 503"):
        read_secret(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)


def test_a_secret_that_cannot_be_filled_is_an_error_after_a_time(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "RETRY_TIMEOUT", 0.0)
    server.objects[SECRET] = {"metadata": {"resourceVersion": "7"}}
    fills: list[str] = []

    def fail(method: str, _path: str) -> None:
        fills.extend([method] if method == "PATCH" else [])
        server.status = 503 if method == "PATCH" and len(fills) < 4 else 200

    server.before = fail
    with pytest.raises(ApiError, match="HTTP status 503"):
        read_secret(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)
    assert fills == ["PATCH"]
