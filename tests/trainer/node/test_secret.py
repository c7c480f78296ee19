"""The run's secret: mounted, agreed on by all nodes through the API server, or missing, which is said aloud."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kittrain.env import NodeEnv, node_env
from kittrain.node.secret import run_secret
from kittrain.system import apiserver
from kittrain.system.apiserver import ApiError
from kittrain.variables import EnvError
from tests.trainer.kubernetes import ApiServer

SECRET = "/api/v1/namespaces/team/secrets/run-rendezvous"
PATIENCE = 60  # seconds


def node(**env: str) -> NodeEnv:
    return node_env({"PET_RDZV_ENDPOINT": "node-0:29400", **env})


def ask(asked: NodeEnv, account: Path) -> tuple[bytes | None, list[str]]:
    said: list[str] = []
    return run_secret(asked, said.append, apiserver.ApiServer(account=account)), said


def test_a_mounted_secret_is_taken_and_nobody_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n")
    asked = node(KIT_SECRET_FILE=str(file), KIT_SECRET_NAME="run-rendezvous")
    assert ask(asked, tmp_path) == (b"0123456789abcdef", [])


def test_a_mounted_secret_that_is_none_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("short\n")
    with pytest.raises(EnvError, match="5 bytes, and a secret has at least 16"):
        ask(node(KIT_SECRET_FILE=str(file)), tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(EnvError, match="Is a directory"):
        ask(node(KIT_SECRET_FILE=str(file)), tmp_path)


def test_all_nodes_agree_on_a_secret_that_one_of_them_made(server: ApiServer, tmp_path: Path) -> None:
    server.objects[SECRET] = {"metadata": {"resourceVersion": "7"}}
    all_have_read = threading.Barrier(4)
    readers = threading.local()

    def at_once(method: str, _path: str) -> None:
        if method == "PATCH" and not getattr(readers, "waited", False):
            readers.waited = True  # each connection has a thread of its own
            all_have_read.wait(PATIENCE)

    server.before = at_once
    asked = [
        node(KIT_NODE_INDEX=str(index), KIT_SECRET_NAME="run-rendezvous", KIT_SECRET_FILE=str(tmp_path / "absent"))
        for index in range(4)
    ]
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda one: ask(one, tmp_path), asked))
    ((secret, said),) = {(secret, tuple(said)) for secret, said in found}
    assert secret == base64.b64decode(server.objects[SECRET]["data"]["key"])
    assert len(secret) == 64
    assert said == ()
    assert server.objects[SECRET]["metadata"]["resourceVersion"] == "8"


@pytest.mark.parametrize(("status", "why"), [(403, "HTTP status 403"), (404, "HTTP status 404")])
def test_without_the_right_to_it_the_job_goes_on_aloud(
    server: ApiServer, tmp_path: Path, status: int, why: str
) -> None:
    server.objects[SECRET] = {}
    server.status = status
    found, said = ask(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)
    assert found is None
    assert len(said) == 1
    assert "warning: this run has no secret: whoever reaches port 29400 of node 0" in said[0]
    assert why in said[0]
    assert ask(node(KIT_SECRET_NAME="run-rendezvous", KIT_NODE_INDEX="1"), tmp_path) == (None, [])


def test_without_an_account_the_job_goes_on_aloud_unless_it_insists(tmp_path: Path) -> None:
    found, said = ask(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)
    assert found is None
    assert "no token of a service account" in said[0]
    with pytest.raises(EnvError, match="rendezvousSecret: require: this run has no secret"):
        ask(node(KIT_SECRET_REQUIRED="1", KIT_NODE_INDEX="1"), tmp_path)


def test_a_server_that_does_not_answer_is_asked_again_and_then_given_up(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "PAUSE", 0.01)
    server.objects[SECRET] = {"data": {"key": base64.b64encode(b"0123456789abcdef").decode()}}
    asked: list[str] = []

    def recover(method: str, _path: str) -> None:
        asked.append(method)
        server.status = 200 if len(asked) > 2 else 503

    server.before = recover
    assert ask(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path) == (b"0123456789abcdef", [])
    assert asked == ["GET"] * 3
    monkeypatch.setattr(apiserver, "PATIENCE", 0.0)
    server.before = lambda *_: setattr(server, "status", 503)
    with pytest.raises(ApiError, match="HTTP status 503"):
        ask(node(KIT_SECRET_NAME="run-rendezvous"), tmp_path)


def test_torchs_own_rendezvous_says_what_it_lets_others_do(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef")
    asked = node(KIT_RENDEZVOUS="c10d", KIT_SECRET_FILE=str(file))
    found, said = ask(asked, tmp_path)
    assert found is None
    assert "can run code in all nodes" in said[0]
    with pytest.raises(EnvError, match="c10d is torch's own"):
        ask(replace(asked, secret_required=True), tmp_path)
