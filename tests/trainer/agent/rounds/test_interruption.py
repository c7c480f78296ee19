"""A machine's end is announced by its cloud in that cloud's way; the node is drained then, and not begun on it."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kitjob import document
from kitjob.run import RunFacts
from kittrain.agent.rounds import interruption
from kittrain.agent.rounds.drain import Drain
from kittrain.agent.rounds.interruption import InterruptionWatch, NoAnswerError, Source, Taints, sources_of
from kittrain.job.env import NodeEnv
from kittrain.system.apiserver import ApiServer
from tests.trainer import kubernetes
from tests.trainer.nodes import SCRIPTS, Nodes
from tests.trainer.settings import job

NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
ACTION = "/latest/meta-data/spot/instance-action"
GCP = "/computeMetadata/v1/instance"


class Cloud(ThreadingHTTPServer):
    """A metadata service on loopback.

    Attributes:
        answers: status and text by path; others are 404.
        asked: method, path and headers of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Cloud

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        status, text = self.server.answers.get(self.path, (404, "not found"))
        body = text.encode("utf-8", "surrogateescape")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET  # noqa: N815  the base class calls it

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    server = Cloud()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_aws_announces_a_spot_instance_s_end_to_those_with_a_token(cloud: Cloud) -> None:
    source = Source("aws", cloud.url)
    cloud.answers["/latest/api/token"] = (200, "a token")
    assert source.notice() == ""
    cloud.answers[ACTION] = (200, '{"action": "terminate", "time": "2026-11-26T08:22:00Z"}')
    assert source.notice() == "AWS: terminate at 2026-11-26T08:22:00Z"
    methods = [(method, path) for method, path, _ in cloud.asked]
    assert methods == [("PUT", "/latest/api/token"), ("GET", ACTION), ("GET", ACTION)]
    assert {headers["X-aws-ec2-metadata-token"] for _, path, headers in cloud.asked if path == ACTION} == {"a token"}
    cloud.answers[ACTION] = (401, "")
    with pytest.raises(NoAnswerError, match="status 401"):
        source.notice()
    cloud.answers |= {ACTION: (200, "terminate!"), "/latest/api/token": (200, "another")}
    assert source.notice() == "AWS: interruption"
    assert cloud.asked[-1][2]["X-aws-ec2-metadata-token"] == "another"


@pytest.mark.parametrize(
    ("preempted", "maintenance", "notice"),
    [
        ("FALSE", "NONE", ""),
        ("TRUE", "NONE", "Google Cloud: preempted"),
        ("FALSE", "TERMINATE_ON_HOST_MAINTENANCE", "Google Cloud: TERMINATE_ON_HOST_MAINTENANCE"),
        ("FALSE", "MIGRATE_ON_HOST_MAINTENANCE", ""),
    ],
)
def test_google_announces_preemption_and_maintenance(
    cloud: Cloud, preempted: str, maintenance: str, notice: str
) -> None:
    cloud.answers |= {f"{GCP}/preempted": (200, preempted), f"{GCP}/maintenance-event": (200, maintenance)}
    assert Source("gcp", cloud.url).notice() == notice
    assert {headers["Metadata-Flavor"] for *_, headers in cloud.asked} == {"Google"}


@pytest.mark.parametrize(
    ("events", "notice"),
    [
        ([], ""),
        ([{"EventType": "Freeze", "Resources": ["mine"]}], ""),
        ([{"EventType": "Preempt", "Resources": ["other"]}], ""),
        ([{"EventType": "Preempt", "Resources": "mine"}, "what"], ""),
        (
            [
                {"EventType": "Preempt", "Resources": ["other"]},
                {"EventType": "Preempt", "Resources": ["a", "mine"], "NotBefore": "Thu, 26 Nov 2026 08:29:47 GMT"},
            ],
            "Azure: Preempt Thu, 26 Nov 2026 08:29:47 GMT",
        ),
        ([{"EventType": "Terminate", "Resources": ["mine"], "NotBefore": None}], "Azure: Terminate"),
    ],
)
def test_azure_tells_all_machines_of_each_one_s_events(cloud: Cloud, events: list[Any], notice: str) -> None:
    cloud.answers |= {NAME: (200, "mine"), EVENTS: (200, json.dumps({"DocumentIncarnation": 1, "Events": events}))}
    assert Source("azure", cloud.url).notice() == notice
    assert {headers["Metadata"] for *_, headers in cloud.asked} == {"true"}


@pytest.mark.parametrize(
    ("status", "text", "notice"),
    [
        (200, "FALSE", ""),
        (200, "none\n", ""),
        (200, "", ""),
        (204, "", ""),
        (404, "no such notice", ""),
        (500, "broken", ""),
        (302, "moved", ""),
        (200, "TRUE", "TRUE"),
        (200, "rack 4 is switched off at noon\nby Ann", "rack 4 is switched off at noon"),
        (200, "\x1b[2Joff\r\n", "[2Joff"),
        (200, "\udcff off", "\ufffd off"),
        (200, "x" * 1_000_000, "x" * 100),
    ],
    ids=str,
)
def test_a_url_of_one_s_own_has_a_text_or_none(cloud: Cloud, status: int, text: str, notice: str) -> None:
    cloud.answers |= {"/notice?rack=4": (status, text), "/elsewhere": (200, "moved here")}
    assert Source(f"{cloud.url}/notice?rack=4").notice() == notice


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1", "http://:x/", "https://127.0.0.1:1/"])
def test_who_does_not_answer_announces_nothing(url: str) -> None:
    with pytest.raises(NoAnswerError, match="http"):
        Source(url).notice()


def test_a_service_that_hangs_is_waited_for_for_a_moment_only(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "TIMEOUT", 0.05)
    monkeypatch.setattr(_Handler, "do_GET", lambda _: time.sleep(1))
    with pytest.raises(NoAnswerError, match="timed out"):
        Source(cloud.url).notice()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[kubernetes.ApiServer, ApiServer]]:
    """A fake API server, and the account of a pod that reaches it."""
    with kubernetes.serving(kubernetes.identity_in(tmp_path), tmp_path, monkeypatch) as found:
        yield found, ApiServer(account=tmp_path)


@pytest.mark.parametrize(
    ("taints", "notice"),
    [
        (None, ""),
        ([], ""),
        ([{"key": "other", "effect": "NoSchedule"}], ""),
        ([{"key": "other"}, {"key": "leaving", "value": "soon", "effect": "PreferNoSchedule"}], "taint leaving"),
    ],
)
def test_a_taint_of_the_node_announces_its_end(
    server: tuple[kubernetes.ApiServer, ApiServer], taints: Any, notice: str
) -> None:
    fake, account = server
    fake.objects["/api/v1/nodes/worker-1"] = {"spec": {} if taints is None else {"taints": taints}}
    assert Taints("worker-1", ["leaving", "unseen"], account).notice() == notice


def test_without_the_right_to_read_nodes_the_fix_is_told(server: tuple[kubernetes.ApiServer, ApiServer]) -> None:
    fake, account = server
    fake.objects["/api/v1/nodes/worker-1"] = {"spec": {}}
    fake.status = 403
    with pytest.raises(NoAnswerError, match=r"status 403; fix: .*nodeTaints of charts/platform"):
        Taints("worker-1", ["leaving"], account).notice()
    fake.status = 500
    with pytest.raises(NoAnswerError, match=r"status 500$"):
        Taints("worker-1", ["leaving"], account).notice()


def test_each_source_that_is_silent_is_told_once_and_hides_no_other() -> None:
    class Silent:
        key = "policy.drainTaints"

        def notice(self) -> str:
            raise NoAnswerError("gone")

    class Loud:
        key = "policy.interruptionNotice"

        def notice(self) -> str:
            return "it goes"

    said: list[str] = []
    watch = InterruptionWatch([Silent(), Loud()], Drain(), said.append)
    assert watch.now() == watch.now() == "this machine is about to be taken away (it goes)"
    assert said == ["warning: policy.drainTaints has no answer: gone"]


def test_only_pods_ask_for_taints_and_nobody_unasked() -> None:
    def keys(local_addr: str | None, **settings: Any) -> list[str]:
        return [one.key for one in sources_of(NodeEnv(job=job(**settings), local_addr=local_addr))]

    taints = {"policy__drain_taints": ["leaving"]}
    assert keys("10.0.0.1") == []
    assert keys("10.0.0.1", **taints) == ["policy.drainTaints"]
    assert keys("127.0.0.1", **taints) == []
    assert keys("10.0.0.1", policy__interruption_notice="aws", **taints) == [
        "policy.interruptionNotice",
        "policy.drainTaints",
    ]


def spec(nodes: Nodes, **settings: Any) -> Mapping[str, str]:
    return {"KIT_SPEC": document.write(job(nodes="1:2", **settings), RunFacts(rendezvous_port=nodes.port))}


@pytest.mark.slow
def test_a_node_whose_machine_is_to_go_is_drained_and_the_others_go_on(tmp_path: Path, cloud: Cloud) -> None:
    asking = {"policy__interruption_notice": f"{cloud.url}/notice"}
    with Nodes(tmp_path, str(SCRIPTS / "steps.py"), nodes="1:2", DRAIN_CODE="0") as nodes:
        nodes.start(0, **spec(nodes))
        nodes.start(1, **spec(nodes, **asking))
        for index in (0, 1):
            nodes.until(index, "world of 2")
        cloud.answers["/notice"] = (200, "rack 4 goes")
        assert nodes.wait(1) == 75
        assert nodes.end(1)["reason"] == "this machine is about to be taken away (rack 4 goes)"
        nodes.until(0, "world of 1")
        nodes.finish()
        assert nodes.wait(0) == 0


@pytest.mark.slow
def test_a_node_does_not_begin_on_a_machine_that_is_to_go(tmp_path: Path, cloud: Cloud) -> None:
    cloud.answers["/notice"] = (200, "TRUE")
    with Nodes(tmp_path, str(SCRIPTS / "steps.py")) as nodes:
        nodes.start(0, **spec(nodes, policy__interruption_notice=f"{cloud.url}/notice"))
        nodes.until(0, "this machine is about to be taken away (TRUE): not starting here")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        assert "world of" not in nodes.output(0)


@pytest.mark.wide
@pytest.mark.slow
def test_a_service_that_does_not_answer_is_one_warning(tmp_path: Path) -> None:
    """It is asked before the node begins, and again while it trains."""
    with Nodes(tmp_path, str(SCRIPTS / "steps.py")) as nodes:
        nodes.start(0, **spec(nodes, policy__interruption_notice="http://127.0.0.1:1/notice"))
        nodes.until(0, "world of 1")
        time.sleep(2 * interruption.TIMEOUT)
        nodes.finish()
        assert nodes.wait(0) == 0
        assert nodes.output(0).count("policy.interruptionNotice has no answer") == 1
