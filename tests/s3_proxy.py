"""A proxy in front of an S3 server that does to requests what networks and stores do: by a rule that a test gives.

Clients sign what they send with the proxy's own address, which is passed on, so that the server accepts it.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

HALF: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to one request.

    Attributes:
        delay: seconds before it is passed on.
        status: the server does not see it, and this is the answer.
        lost: the server handles it, and the connection ends without an answer.
        cut: the connection ends in the middle of the answer's body.
        replayed: the answer is this, from another time.
        headers: these replace what the client has sent; an empty one is left out.
    """

    delay: float = 0.0
    status: int = 0
    lost: bool = False
    cut: bool = False
    replayed: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Rule = Callable[[Seen], Fault | None]
UNAVAILABLE: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Proxy:
    """The proxy; ``rule`` may be changed at any time, and ``seen`` has all requests."""

    def __init__(self, server: str) -> None:
        self.server = urlsplit(server)
        self.rule: Rule = lambda _: None
        self.seen: list[Seen] = []
        self.url = ""


@contextmanager
def in_front_of(server: str) -> Iterator[Proxy]:
    """A proxy of a server's URL, until the context ends."""
    proxy = Proxy(server)

    class Handler(_Handler):
        owner = proxy

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        proxy.url = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            listening.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    owner: Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = Seen(method=self.command, path=self.path, headers=dict(self.headers.items()), body=body)
        self.owner.seen.append(seen)
        fault = self.owner.rule(seen) or Fault()
        time.sleep(fault.delay)
        if fault.status:
            self._answer(fault.status, {}, UNAVAILABLE if fault.replayed is None else fault.replayed)
            return
        if fault.replayed is not None:
            self._answer(200, {"Content-Type": "application/xml", "ETag": '"0"'}, fault.replayed)
            return
        status, headers, content = self._pass_on(seen, dict(fault.headers))
        if fault.lost:
            self._end()
        elif fault.cut and content:
            self._answer(status, headers, content[: int(len(content) * HALF)], announced=len(content))
            self._end()
        else:
            self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815  names of the library

    def _pass_on(self, seen: Seen, changed: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        assert self.owner.server.hostname
        upstream = http.client.HTTPConnection(self.owner.server.hostname, self.owner.server.port, timeout=60)
        try:
            upstream.putrequest(seen.method, seen.path, skip_host=True, skip_accept_encoding=True)
            for name, value in {**seen.headers, **changed}.items():
                if changed.get(name) != "":
                    upstream.putheader(name, value)
            upstream.endheaders(seen.body)
            answer = upstream.getresponse()
            content = answer.read()
            return answer.status, dict(answer.getheaders()), content
        finally:
            upstream.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, announced: int | None = None) -> None:
        self.send_response_only(status)
        kept = {
            name: value for name, value in headers.items() if name.lower() not in {"transfer-encoding", "connection"}
        }
        if self.command != "HEAD" or "Content-Length" not in kept:
            kept["Content-Length"] = str(len(content) if announced is None else announced)
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            if self.command != "HEAD":
                self.wfile.write(content)

    def _end(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
