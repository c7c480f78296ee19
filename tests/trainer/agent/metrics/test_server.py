"""The server of metrics, with clients that ask, and clients that want to hurt."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from kittrain.agent.metrics import server

TEXT = "x 1\n" * 50_000


class Served:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self.listener.getsockname()[1]
        self.made: list[bool] = []
        server.serve(self.listener, self.text)

    def text(self, openmetrics: bool) -> tuple[str, str]:  # noqa: FBT001  as it is called
        self.made.append(openmetrics)
        return f"kind/{openmetrics}", TEXT

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def get(self, path: str = "/metrics", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        client.request(method, path, headers=headers)
        return client.getresponse()

    def works(self) -> bool:
        return self.get().read().decode() == TEXT


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.listener.shutdown(socket.SHUT_RDWR)


def test_a_scraper_gets_the_format_that_it_reads(served: Served) -> None:
    answer = served.get(Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert (answer.status, answer.getheader("Content-Type"), answer.read().decode()) == (200, "kind/True", TEXT)
    answer = served.get(Accept="*/*")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "kind/False")
    assert answer.getheader("Connection") == "close"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics?x=1", 200), ("HEAD", "/metrics", 200), ("POST", "/metrics", 405)],
)
def test_other_requests(served: Served, method: str, path: str, status: int) -> None:
    answer = served.get(path, method)
    assert answer.status == status
    if method == "HEAD":
        assert answer.read() == b""


def test_clients_that_are_silent_or_slow_keep_nobody_out(served: Served) -> None:
    """More slow connections than there are places: those that wait for a request, and those that read no answer."""
    with ExitStack() as stack:
        for number in range(3 * server.CONNECTIONS):
            peer = stack.enter_context(served.connect())
            if number % 2:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            else:
                peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")  # and never reads the answer
        for _ in range(3):
            assert served.works()


def test_a_slow_client_is_dropped_in_the_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.2)
    with served.connect() as peer:
        peer.sendall(b"GET /metrics")
        assert peer.recv(1) == b""  # closed by the server
    assert served.works()


def test_a_request_without_an_end_is_dropped(served: Served) -> None:
    with served.connect() as peer:
        peer.sendall(b"x" * (server.REQUEST_BYTES + 1))
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    assert served.works()


def test_many_requests_make_few_texts(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH", 3600.0)
    assert served.works()
    before = len(served.made)
    threads = [threading.Thread(target=served.works) for _ in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(served.made) == before


GARBAGE = (b"\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET  /metrics\r\n\r\n", b"\x16\x03\x01\r\n\r\n")


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_answered_or_dropped(served: Served, garbage: bytes) -> None:
    with served.connect() as peer:
        peer.sendall(garbage)
        assert peer.recv(12) in {b"HTTP/1.1 404", b"HTTP/1.1 405"}
    assert served.works()


def test_an_error_in_the_text_ends_one_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr(server, "_answer", lambda *_: 1 / 0)
        with pytest.raises(http.client.HTTPException):
            served.get()
    assert served.works()
