"""The report in a ConfigMap: the API server's protocol over real TLS, and servers that refuse, fail or hang."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainer.node import configmap
from trainer.node.configmap import ConfigMapSink, RefusedError


class ApiServer(ThreadingHTTPServer):
    """Holds one ConfigMap, and merges patches into it for whoever has the token."""

    def __init__(self, identity: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.token = "first"
        self.status = 200
        self.data: dict[str, str] = {}


class _Api(BaseHTTPRequestHandler):
    server: ApiServer

    def do_PATCH(self) -> None:
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, _, query = self.path.partition("?")
        status = self.server.status
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            status = 401
        elif path != "/api/v1/namespaces/team/configmaps/run-status":
            status = 404
        elif (self.headers["Content-Type"], query) != ("application/merge-patch+json", "fieldManager=trainer.agent"):
            status = 415
        if status == 200:
            self.server.data |= patch["data"]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    name = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*new, *files, *name], check=True, capture_output=True)
    both = folder / "both"
    both.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return both


@pytest.fixture
def server(identity: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server, and a pod's surroundings that lead to it."""
    (tmp_path / "ca.crt").write_bytes(identity.read_bytes())
    (tmp_path / "namespace").write_text("team")
    (tmp_path / "token").write_text("first\n")
    with ApiServer(identity) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.server_port))
        threading.Thread(target=api.serve_forever, daemon=True).start()
        yield api
        api.shutdown()


@pytest.fixture
def sink(tmp_path: Path) -> ConfigMapSink:
    return ConfigMapSink(name="run-status", account=tmp_path)


def test_the_report_is_one_key_and_whatever_else_is_there_stays(server: ApiServer, sink: ConfigMapSink) -> None:
    server.data["note"] = "somebody else's"
    sink.put({"round": 1, "progress": {"loss": 0.5}})
    sink.put({"round": 2})
    assert json.loads(server.data.pop("report")) == {"round": 2}
    assert server.data == {"note": "somebody else's"}


def test_a_token_that_was_renewed_is_used(server: ApiServer, sink: ConfigMapSink, tmp_path: Path) -> None:
    sink.put({"round": 1})
    server.token = "second"
    with pytest.raises(RefusedError, match="token is not accepted"):
        sink.put({"round": 2})
    (tmp_path / "token").write_text("second")
    sink.put({"round": 3})
    assert json.loads(server.data["report"]) == {"round": 3}


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
    assert "report" in server.data


@pytest.mark.usefixtures("server")
def test_a_server_that_the_clusters_authority_did_not_sign_gets_no_token(sink: ConfigMapSink, tmp_path: Path) -> None:
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    subprocess.run([*new, "-keyout", "/dev/null", "-out", str(tmp_path / "ca.crt")], check=True, capture_output=True)
    with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED"):
        sink.put({})


def test_a_server_that_hangs_is_given_up(
    server: ApiServer, sink: ConfigMapSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.shutdown()  # connections wait in the kernel's queue from now on
    monkeypatch.setattr(configmap, "TIMEOUT", 0.1)
    with pytest.raises(RefusedError, match="timed out"):
        sink.put({})


def test_a_pod_without_a_token_or_a_cluster_says_so(
    sink: ConfigMapSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RefusedError, match="no token of a service account"):
        sink.put({})
    (tmp_path / "token").write_text("x")
    (tmp_path / "namespace").write_text("team")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(RefusedError, match="KUBERNETES_SERVICE_HOST is not set"):
        sink.put({})
