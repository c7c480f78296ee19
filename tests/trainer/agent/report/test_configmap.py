"""Writing the report to a ConfigMap, with an API server that accepts it, rejects it, fails or hangs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kitjob import typed
from kitjob.report import Preparation, Progress, Report
from kittrain.agent.report.configmap import ConfigMapSink, ReportRejectedError
from kittrain.system import apiserver
from tests.trainer.kubernetes import ApiServer

REPORT = "/api/v1/namespaces/team/configmaps/run-status"


@pytest.fixture(autouse=True)
def report(server: ApiServer) -> None:
    server.objects[REPORT] = {"data": {}}


@pytest.fixture
def sink(tmp_path: Path) -> ConfigMapSink:
    return ConfigMapSink(name="run-status", server=apiserver.ApiServer(account=tmp_path))


def test_the_report_is_one_key_and_other_keys_stay(server: ApiServer, sink: ConfigMapSink) -> None:
    server.objects[REPORT]["data"]["note"] = "another client's"
    sink.put(Report(round=1, progress=Progress(loss=0.5)))
    sink.put(Report(round=2))
    data = server.objects[REPORT]["data"]
    assert typed.load(Report, data.pop("report").encode()) == Report(round=2)
    assert data == {"note": "another client's"}


def test_what_a_node_does_before_it_joins_is_a_separate_key(server: ApiServer, sink: ConfigMapSink) -> None:
    sink.put(Report(round=1))
    note = Preparation(pod="job-12", since=1.0, what="installing requirements")
    sink.prepare(12, note)
    assert typed.load(Preparation, server.objects[REPORT]["data"]["preparing-12"].encode()) == note
    sink.prepare(12, None)
    assert server.objects[REPORT]["data"].keys() == {"report"}


def test_a_renewed_token_is_used(server: ApiServer, sink: ConfigMapSink, tmp_path: Path) -> None:
    sink.put(Report(round=1))
    server.token = "second"
    with pytest.raises(ReportRejectedError, match="token was rejected"):
        sink.put(Report(round=2))
    (tmp_path / "token").write_text("second")
    sink.put(Report(round=3))
    assert typed.load(Report, server.objects[REPORT]["data"]["report"].encode()) == Report(round=3)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "run-status: the pod's service account lacks the right; let its Role `patch` that ConfigMap"),
        (404, "run-status: it does not exist"),
        (503, "run-status: HTTP status 503"),
        (599, "run-status: HTTP status 599"),
    ],
)
def test_a_rejection_names_cause_and_fix(server: ApiServer, sink: ConfigMapSink, status: int, words: str) -> None:
    server.status = status
    with pytest.raises(ReportRejectedError, match=words):
        sink.put(Report())
    server.status = 200
    sink.put(Report())


def test_proxies_are_ignored(server: ApiServer, sink: ConfigMapSink, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    sink.put(Report(round=1))
    assert "report" in server.objects[REPORT]["data"]


def test_a_server_with_an_untrusted_certificate_gets_no_token(sink: ConfigMapSink, tmp_path: Path) -> None:
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    subprocess.run([*new, "-keyout", "/dev/null", "-out", str(tmp_path / "ca.crt")], check=True, capture_output=True)
    with pytest.raises(ReportRejectedError, match="CERTIFICATE_VERIFY_FAILED"):
        sink.put(Report())


def test_a_server_that_hangs_times_out(server: ApiServer, sink: ConfigMapSink, monkeypatch: pytest.MonkeyPatch) -> None:
    server.shutdown()  # connections stay in the kernel's queue from now on
    monkeypatch.setattr(apiserver, "TIMEOUT", 0.1)
    with pytest.raises(ReportRejectedError, match="timed out"):
        sink.put(Report())


def test_a_missing_token_or_cluster_is_named(
    sink: ConfigMapSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").rename(tmp_path / "no token")
    with pytest.raises(ReportRejectedError, match="no service account token"):
        sink.put(Report())
    (tmp_path / "no token").rename(tmp_path / "token")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ReportRejectedError, match="KUBERNETES_SERVICE_HOST is not set"):
        sink.put(Report())


def test_the_last_report_is_read_back(server: ApiServer, sink: ConfigMapSink) -> None:
    assert sink.last() is None
    sink.put(Report(round=3))
    assert sink.last() == Report(round=3)
    server.status = 403
    with pytest.raises(OSError, match="run-status"):
        sink.last()


def test_the_tail_of_a_history_comes_with_the_report_in_one_request(server: ApiServer, sink: ConfigMapSink) -> None:
    assert sink.tail() == ""
    sink.put(Report(round=1), "a tail")
    assert server.objects[REPORT]["metadata"]["resourceVersion"] == "1"
    sink.put(Report(round=2))
    assert (sink.tail(), sink.last()) == ("a tail", Report(round=2))
