"""Serves one text over HTTP, from a thread that nobody can keep busy.

A connection has five seconds in all, and there are at most sixteen: a further one closes the oldest, so that clients
which send nothing, or read nothing, keep out no scraper. The text is made twice a second at most, and the thread rests
after each turn, whatever is asked. Each answer ends its connection.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

SECONDS: Final = 5.0  # of a connection
CONNECTIONS: Final = 16
REQUEST_BYTES: Final = 8192
REST: Final = 0.01  # seconds between two turns, each of which accepts at most CONNECTIONS
FRESH: Final = 0.5  # seconds that a text is served again
PATH: Final = b"/metrics"
CHUNK: Final = 65536


class Answer:
    """What is answered; ``text`` is called with whether the client reads OpenMetrics."""

    def __init__(self, text: Callable[[bool], tuple[str, str]]) -> None:
        self._text = text
        self._made: dict[bool, tuple[float, bytes]] = {}

    def to(self, request: bytes) -> bytes:
        """The whole answer to a request's head."""
        line, _, headers = request.partition(b"\r\n")
        method, _, target = line.partition(b" ")
        path = target.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return _answer("405 Method Not Allowed", "text/plain", b"only GET\n")
        if path != PATH:
            return _answer("404 Not Found", "text/plain", b"see /metrics\n")
        found = self._fresh(b"application/openmetrics-text" in headers.lower())
        return found.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == b"HEAD" else found

    def _fresh(self, openmetrics: bool) -> bytes:  # noqa: FBT001  the only argument
        made, found = self._made.get(openmetrics, (0.0, b""))
        if not found or time.monotonic() > made + FRESH:
            kind, text = self._text(openmetrics)
            found = _answer("200 OK", kind, text.encode())
            self._made[openmetrics] = time.monotonic(), found
        return found


def serve(listener: socket.socket, text: Callable[[bool], tuple[str, str]]) -> None:
    """Answer on a listening socket until the process ends; starts a thread.

    Args:
        listener: the socket.
        text: called with whether the client reads OpenMetrics; returns the content type and the text.
    """
    threading.Thread(target=_Server(listener, Answer(text)).run, name="metrics", daemon=True).start()


class _Connection:
    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.until = time.monotonic() + SECONDS
        self.request = b""
        self.answer = memoryview(b"")


class _Server:
    def __init__(self, listener: socket.socket, answer: Answer) -> None:
        self._listener = listener
        self._answer = answer
        self._ready = selectors.DefaultSelector()
        self._open: dict[int, _Connection] = {}  # by file number, the oldest first

    def run(self) -> None:
        self._listener.settimeout(0)
        self._ready.register(self._listener, selectors.EVENT_READ)
        while True:
            self.turn()
            time.sleep(REST)

    def turn(self) -> None:
        """Wait until there is something to do, and do it."""
        first = next(iter(self._open.values()), None)
        for key, _ in self._ready.select(max(first.until - time.monotonic(), 0.0) if first else None):
            if key.fileobj is self._listener:
                self._accept()
            elif connection := self._open.get(key.fd):  # else it was closed in this turn
                self._serve(connection)
        now = time.monotonic()
        for connection in [one for one in self._open.values() if one.until <= now]:
            self._close(connection)

    def _accept(self) -> None:
        for _ in range(CONNECTIONS):
            try:
                peer, _ = self._listener.accept()
            except OSError:  # no more of them, one that is gone already, or no file number left
                return
            if len(self._open) >= CONNECTIONS:
                self._close(next(iter(self._open.values())))
            peer.settimeout(0)
            connection = _Connection(peer)
            self._open[peer.fileno()] = connection
            self._ready.register(peer, selectors.EVENT_READ)
            self._serve(connection)  # its request may be there already

    def _serve(self, connection: _Connection) -> None:
        try:
            if connection.answer:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            return
        except Exception:  # noqa: BLE001  a client that is gone, or any error in its answer: the next one is served
            self._close(connection)

    def _receive(self, connection: _Connection) -> None:
        found = connection.peer.recv(REQUEST_BYTES)
        connection.request += found
        if b"\r\n\r\n" in connection.request:
            connection.answer = memoryview(self._answer.to(connection.request))
            self._ready.modify(connection.peer, selectors.EVENT_WRITE)
            self._send(connection)
        elif not found or len(connection.request) > REQUEST_BYTES:
            self._close(connection)

    def _send(self, connection: _Connection) -> None:
        connection.answer = connection.answer[connection.peer.send(connection.answer[:CHUNK]) :]
        if not connection.answer:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._open.pop(connection.peer.fileno(), None)
        with suppress(OSError, ValueError, KeyError):
            self._ready.unregister(connection.peer)
        connection.peer.close()


def _answer(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
