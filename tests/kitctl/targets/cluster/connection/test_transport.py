"""Servers that are not API servers, and servers that are unavailable: errors, and retries."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from kitctl.api.job import Job
from kitctl.base.errors import Unavailable, WaitTimeout
from kitctl.targets.cluster.connection import transport
from kitctl.targets.cluster.read.lifecycle import cancelled
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

LOGIN = (200, "<html><title>Log in to continue</title></html>")
STATUS = {"kind": "Status", "message": "the server is overloaded", "reason": "ServiceUnavailable"}
COMMANDS = [("list",), ("status", "run"), ("submit", "--name", "run"), ("delete", "run"), ("logs", "run"), ("doctor",)]
# fmt: off
# The server's answer, and part of the error message.
NO_API: list[tuple[str, dict[str, Any], str]] = [
    ("a login page", {"answer": LOGIN, "headers": {"Content-Type": "text/html"}},
        "no JSON object (HTTP 200, text/html): <html><title>Log in"),
    ("a redirect", {"answer": (302, ""), "headers": {"Location": "https://sso.example/"}},
        "redirects (HTTP 302) to https://sso.example/"),
    ("nothing", {"answer": (200, "")}, "sent an empty response (HTTP 200)"),
    ("half an object", {"answer": (200, '{"items": [')}, 'no JSON object (HTTP 200, text/plain): {"items": ['),
    ("a list", {"answer": (200, "[]")}, "no JSON object"),
    ("a page that is not found", {"answer": (404, "<html>404 page not found</html>")},
        "not from an API server: <html>404"),
    ("http at an https port", {"answer": (400, "Client sent an HTTP request to an HTTPS server.\n")},
        "an HTTP request to an HTTPS server"),
]
# fmt: on


@pytest.mark.parametrize(("fault", "expected"), [row[1:] for row in NO_API], ids=[row[0] for row in NO_API])
def test_a_server_that_is_not_an_api_server_is_an_error_with_a_fix(
    server: ApiServer, kit: Kit, fault: dict[str, Any], expected: str
) -> None:
    server.plan(".", times=999, **fault)
    words = kit("list", exit_code=1)
    assert expected in words
    assert "HTTPS_PROXY and NO_PROXY" in words or "write https://" in words


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_reports_a_server_that_is_not_an_api_server(
    server: ApiServer, kit: Kit, command: tuple[str, ...]
) -> None:
    server.plan(".", times=999, answer=LOGIN)
    assert "does not seem to be a Kubernetes API server" in kit(*command, exit_code=1)
    assert server.names("jobs.batch") == set()


def test_what_only_the_server_needs_is_not_kept_and_a_text_of_that_name_is(server: ApiServer, kit: Kit) -> None:
    metadata = {"name": "x", "managedFields": [{"manager": "kubelet"}]}
    server.plan(
        ".", answer=(200, json.dumps({"kind": "ConfigMap", "metadata": metadata, "data": {"managedFields": "[]"}}))
    )
    found = kit.target().api.get("ConfigMap", "default", "x")
    assert (found["metadata"], found["data"]) == ({"name": "x"}, {"managedFields": "[]"})


def test_https_to_a_server_without_tls(server: ApiServer, kit: Kit) -> None:
    output = kit("list", exit_code=1, url=server.url.replace("http:", "https:"))
    assert "fix: no TLS at this address: check the server's address" in output


def test_a_proxys_404_does_not_mean_that_an_object_is_gone(server: ApiServer, kit: Kit) -> None:
    """A delete waits until the API server reports its job as gone."""
    kit.submit()
    missing = {"answer": (404, "<html>not found</html>")}
    server.plan("DELETE .*/jobs/run", before=lambda: server.plan("GET .*/jobs/run", **missing))
    assert "not from an API server" in kit("delete", "run", exit_code=1)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_request_to_an_unavailable_server_is_retried(server: ApiServer, kit: Kit, status: int) -> None:
    kit.submit()
    server.plan("GET", times=2, answer=(status, STATUS))
    assert "run" in kit("status", "run")


def test_an_outage_and_its_end_are_logged_once(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    server.plan("GET", times=3, answer=(503, STATUS))
    output = kit("status", "run")
    assert output.count("the server is overloaded: retrying for up to ") == 1
    assert output.count("the cluster answers again") == 1


def test_retry_after_is_respected(server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    kit.submit()
    server.plan("GET", answer=(429, STATUS), headers={"Retry-After": "7"})
    kit("status", "run")
    assert 7.0 in slept  # other threads may sleep, too


def test_a_server_that_stays_unavailable_is_an_error(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.5)
    server.plan(".", times=999, answer=(503, "<html>no upstream</html>"))
    output = kit("list", exit_code=1)
    assert "HTTP 503, not from an API server: <html>no upstream</html>" in output


def test_warnings_of_the_server_are_shown_once(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    server.plan("GET", times=9, headers={"Warning": r'299 - "unknown field \"spec.x\" in C:\\y"'})
    assert kit("status", "run").count('the cluster warns: unknown field "spec.x" in C:\\y\n') == 1


def test_a_rejected_request_is_not_retried(server: ApiServer, kit: Kit) -> None:
    server.plan("GET", answer=(403, {"kind": "Status", "message": "forbidden: User cannot"}))
    kit("list", exit_code=1)
    assert [one.path for one in server.requests].count("/apis/batch/v1/namespaces/default/jobs") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("logs", "run", "-f"),
        pytest.param(("wait", "run"), marks=pytest.mark.wide),
        pytest.param(("status", "run", "-w"), marks=pytest.mark.wide),
    ],
    ids=lambda w: w[0],
)
def test_watching_continues_after_an_outage(
    server: ApiServer, kit: Kit, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other commands would fail at once: their retry time is set to 0."""
    kit.submit()
    key = Key("jobs.batch", "default", "run")

    def end() -> None:
        server.store.patch(key, cancelled("2026-01-01T00:00:00Z"), apply=False)

    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.0)
    report = "GET .*/configmaps/run-status"  # the first request of each poll
    server.plan(report, times=0 if words[0] == "logs" else 1)
    server.plan(report, times=3, answer=(503, STATUS))
    server.plan(report, lost="before")
    server.plan(report, before=end)
    output = kit(*words, exit_code=103 if words[0] == "wait" else 0)
    assert "retrying for up to" in output


def test_a_wait_with_a_timeout_includes_outages(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    states = Job(target=kit.target(), namespace="default", name="run").states(timeout=3.0)
    assert next(states).phase == "Pending"
    server.plan("GET", times=999, answer=(503, STATUS))
    with pytest.raises(WaitTimeout, match="was pending when last seen"):
        next(states)


def test_a_refused_connection_is_retried_once_the_server_has_answered(kit: Kit, server: ApiServer) -> None:
    target = kit.target()
    assert target.jobs("default") == []
    server.shutdown()
    server.server_close()
    target.retry_seconds = 0.1
    target.api.connection.pool.clear()
    with pytest.raises(Unavailable):
        target.jobs("default")


def test_many_requests_log_one_outage_once(server: ApiServer, kit: Kit) -> None:
    warnings: list[str] = []
    target = kit.target()
    target.api.transport._warn = warnings.append
    server.plan("GET", times=8, answer=(503, STATUS))
    threads = [threading.Thread(target=target.jobs, args=("default",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("retrying for" in line for line in warnings) == 1


def test_a_server_that_accepts_a_request_and_stays_silent_is_an_error(
    server: ApiServer, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < transport.READ_SECONDS <= 60
    defaults = transport.Transport._answer.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "read_seconds", 0.2)
    monkeypatch.setattr(transport, "RETRY_SECONDS", 0.1)
    ended = threading.Event()
    server.plan(".", times=99, before=lambda: ended.wait(20))
    try:
        assert "fix:" in kit("list", exit_code=1)
    finally:
        ended.set()


def test_each_delay_is_twice_the_previous_one_up_to_a_limit() -> None:
    longest = [transport.pause(attempt, 0.0, 0.0) for attempt in range(8)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert transport.pause(10_000, 0.0, 0.0) == 8.0


def test_jitter_subtracts_up_to_half() -> None:
    assert transport.pause(3, 0.0, 1.0) == 1.0
    assert 1.0 < transport.pause(3, 0.0, 0.5) < 2.0


def test_retry_after_is_a_minimum() -> None:
    assert transport.pause(0, 7.0, 0.5) == 7.0
    assert transport.pause(5, 1.0, 0.0) == 8.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("86400", 60.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("", 0.0), ("-1", 0.0)]
)
def test_retry_after(text: str, seconds: float) -> None:
    assert transport.retry_after({"Retry-After": text} if text else {}) == seconds
