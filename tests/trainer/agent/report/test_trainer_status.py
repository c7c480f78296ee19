"""Progress in the status of a TrainJob, posted to a real TLS server, and rejected posts."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kitjob import typed
from kitjob.report import Progress, Report
from kittrain.agent.report import trainer_status
from kittrain.agent.report.report_sinks import FileSink, Sinks, sink_of
from kittrain.agent.report.trainer_status import StatusRejectedError, TrainerStatusSink, status_of

REPORT = Report(
    updated="2026-01-01T00:00:00Z",
    world_size=3,
    progress=Progress(step=50, total_steps=200, loss=0.25, eta_seconds=12.4, metrics={"accuracy": 0.9}),
)


class Server(HTTPServer):
    """A status server that records what is posted."""

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posted: list[tuple[str, str, Any]] = []
        self.answer = 200
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posted.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name)
    subprocess.run([*command, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    with Server(certificate) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def sink(server: Server, certificate: Path, tmp_path: Path) -> TrainerStatusSink:
    (tmp_path / "token").write_text("secret\n")
    return TrainerStatusSink(
        url=f"https://127.0.0.1:{server.server_port}/apis/x/status", ca=certificate, token=tmp_path / "token"
    )


def test_progress_and_metrics_are_posted_with_the_pods_token(sink: TrainerStatusSink, server: Server) -> None:
    sink.put(REPORT)
    ((path, token, body),) = server.posted
    assert (path, token) == ("/apis/x/status", "Bearer secret")
    metrics = {"world_size": "3", "step": "50", "total_steps": "200", "loss": "0.25", "accuracy": "0.9"}
    assert body == {
        "trainerStatus": {
            "progressPercentage": 25,
            "estimatedRemainingSeconds": 12,
            "metrics": [{"name": name, "value": value} for name, value in metrics.items()],
            "lastUpdatedTime": "2026-01-01T00:00:00Z",
        }
    }


def test_a_report_without_progress_has_only_its_time() -> None:
    (status,) = status_of(Report(updated="now")).values()
    assert status == {"metrics": [], "lastUpdatedTime": "now"}
    assert "progressPercentage" not in status_of(Report(updated="now", progress=Progress(step=3)))["trainerStatus"]


def test_a_rejected_report_is_an_error_with_the_field(sink: TrainerStatusSink, server: Server) -> None:
    server.answer = 403
    with pytest.raises(StatusRejectedError, match=r"status\.trainerStatus: HTTP status 403"):
        sink.put(REPORT)


def test_a_server_of_another_authority_is_not_trusted(sink: TrainerStatusSink, server: Server, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other"),
            *("-keyout", str(tmp_path / "key"), "-out", str(other)),
        ],
        check=True,
        capture_output=True,
    )
    with pytest.raises(StatusRejectedError, match="CERTIFICATE_VERIFY_FAILED"):
        TrainerStatusSink(url=sink.url, ca=other, token=sink.token).put(REPORT)
    assert not server.posted


def test_without_the_feature_gate_there_is_no_such_sink(tmp_path: Path) -> None:
    on = {trainer_status.URL: "https://x:1/y", trainer_status.CA: "/ca", trainer_status.TOKEN: "/token"}
    assert sink_of(None, pytest.fail, {}) is None
    named = TrainerStatusSink(url="https://x:1/y", ca=Path("/ca"), token=Path("/token"))
    assert sink_of(None, pytest.fail, on) == named
    both = sink_of(f"file:{tmp_path}/report", pytest.fail, on)
    assert isinstance(both, Sinks)
    assert both.interval == FileSink.interval
    with pytest.raises(OSError, match="trainerStatus"):
        both.put(REPORT)
    assert typed.load(Report, (tmp_path / "report").read_bytes()) == REPORT, "the other one failed"
