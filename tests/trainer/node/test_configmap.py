"""The report in a ConfigMap, through an API server that takes it, refuses it, fails or hangs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kittrain.node.configmap import ConfigMapSink, RefusedError
from kittrain.system import apiserver
from tests.trainer.kubernetes import ApiServer

REPORT = "/api/v1/namespaces/team/configmaps/run-status"


@pytest.fixture(autouse=True)
def report(server: ApiServer) -> None:
    server.objects[REPORT] = {"data": {}}


@pytest.fixture
def sink(tmp_path: Path) -> ConfigMapSink:
    return ConfigMapSink(name="run-status", server=apiserver.ApiServer(account=tmp_path))


def test_the_report_is_one_key_and_whatever_else_is_there_stays(server: ApiServer, sink: ConfigMapSink) -> None:
    server.objects[REPORT]["data"]["note"] = "somebody else's"
    sink.put({"round": 1, "progress": {"loss": 0.5}})
    sink.put({"round": 2})
    data = server.objects[REPORT]["data"]
    assert json.loads(data.pop("report")) == {"round": 2}
    assert data == {"note": "somebody else's"}


def test_a_token_that_was_renewed_is_used(server: ApiServer, sink: ConfigMapSink, tmp_path: Path) -> None:
    sink.put({"round": 1})
    server.token = "second"
    with pytest.raises(RefusedError, match="token is not accepted"):
        sink.put({"round": 2})
    (tmp_path / "token").write_text("second")
    sink.put({"round": 3})
    assert json.loads(server.objects[REPORT]["data"]["report"]) == {"round": 3}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "run-status: the pod's service account may not; let its Role `patch` that ConfigMap"),
        (404, "run-status: it is not there"),
        (503, "run-status: HTTP status 503"),
        (599, "run-status: HTTP status 599"),
    ],
)
def test_a_refusal_names_cause_and_fix(server: ApiServer, sink: ConfigMapSink, status: int, words: str) -> None:
    server.status = status
    with pytest.raises(RefusedError, match=words):
        sink.put({})
    server.status = 200
    sink.put({})


def test_no_proxy_is_asked(server: ApiServer, sink: ConfigMapSink, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    sink.put({"round": 1})
    assert "report" in server.objects[REPORT]["data"]


def test_a_server_that_the_clusters_authority_did_not_sign_gets_no_token(sink: ConfigMapSink, tmp_path: Path) -> None:
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    subprocess.run([*new, "-keyout", "/dev/null", "-out", str(tmp_path / "ca.crt")], check=True, capture_output=True)
    with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED"):
        sink.put({})


def test_a_server_that_hangs_is_given_up(
    server: ApiServer, sink: ConfigMapSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.shutdown()  # connections wait in the kernel's queue from now on
    monkeypatch.setattr(apiserver, "TIMEOUT", 0.1)
    with pytest.raises(RefusedError, match="timed out"):
        sink.put({})


def test_a_pod_without_a_token_or_a_cluster_says_so(
    sink: ConfigMapSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").rename(tmp_path / "no token")
    with pytest.raises(RefusedError, match="no token of a service account"):
        sink.put({})
    (tmp_path / "no token").rename(tmp_path / "token")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(RefusedError, match="KUBERNETES_SERVICE_HOST is not set"):
        sink.put({})
