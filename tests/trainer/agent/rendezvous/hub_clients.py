"""A hub in a thread of this process, and raw connections to it, authenticated or not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any, Self

from kitjob import typed
from kittrain.agent.rendezvous import handshake
from kittrain.agent.rendezvous.handshake import Answer, Greeting, Key, Proof, Session
from kittrain.agent.rendezvous.hang_detector import HangDetector
from kittrain.agent.rendezvous.hub import Hub
from kittrain.agent.rendezvous.membership import Membership
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.system import port
from kittrain.system.lines import PING

KEY = Key(b"0123456789abcdef", "run-7")
HELLO = {"type": "Hello", "node": 1, "started_at": 1.0, "first": True, "pod": "run-7-1"}
JOIN = {"type": "Join", "address": "127.0.0.1", "port": 4711}


class HubThread:
    """A hub for two nodes: a context."""

    def __init__(self, *, max_unauthenticated: int = 4096, heartbeat_timeout: float = 30.0) -> None:
        self.warnings: list[str] = []
        membership = Membership(min_nodes=2, max_nodes=2, last_call_timeout=1.0)
        hang_detector = HangDetector(heartbeat_timeout=heartbeat_timeout, stop_timeout=30.0)
        hub = Hub(KEY, membership, hang_detector, settings=RendezvousSettings(), warn=self.warnings.append)
        hub._server._max_unauthenticated = max_unauthenticated
        self._listener = port.listen("127.0.0.1", 0)
        self.address: tuple[str, int] = self._listener.getsockname()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(hub.serve(self._listener))
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            self._loop.close()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self.thread.join()


class HubClient:
    """A raw connection to a hub; a context."""

    def __init__(self, address: tuple[str, int], *, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(address, timeout=60, source_address=(source, 0))
        self._file = self.socket.makefile("rb")
        self.session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def write(self, data: bytes) -> None:
        """Send bytes; the hub may have closed the connection already."""
        try:
            self.socket.sendall(data)
        except OSError:
            return

    def read(self) -> bytes:
        """Everything that the hub sends until it closes the connection."""
        try:
            return self._file.read()
        except ConnectionResetError:
            return b""

    def readline(self) -> bytes:
        """The hub's next line."""
        return self._file.readline()

    def greet(self, greeting: Greeting) -> Answer:
        """The hub's answer to a greeting."""
        self.write(handshake.line(greeting))
        answer: Answer = typed.load(Answer, self.readline())
        return answer

    def authenticate(self, key: Key = KEY) -> Self:
        """Complete the handshake."""
        greeting = key.greet()
        self.session = key.accept(greeting, self.greet(greeting))
        self.write(handshake.line(Proof(mac=self.session.proof)))
        return self

    def send(self, message: Any) -> None:
        """Send a signed message, valid or not."""
        self.send_text(json.dumps(message).encode())

    def send_text(self, text: bytes) -> None:
        """Send a signed line."""
        assert self.session
        self.write(self.session.sign(text))

    def receive(self) -> dict[str, Any]:
        """The hub's next message other than StepTimings and Succession; empty once it has closed the connection."""
        assert self.session
        while line := self.readline():
            if line == PING:
                continue
            message: dict[str, Any] = json.loads(self.session.verify(line[:-1]))
            if message["type"] not in {"StepTimings", "Succession"}:
                return message
        return {}


def register(client: HubClient, index: int, *, started_at: float = 1.0) -> HubClient:
    """Authenticate a client and send Hello."""
    client.authenticate()
    client.send(HELLO | {"node": index, "started_at": started_at})
    return client


def form_round(*clients: HubClient) -> list[dict[str, Any]]:
    """Join a round by registered clients; returns the message that each receives."""
    for client in clients:
        client.send(JOIN)
    return [client.receive() for client in clients]


def forms_rounds(hub: HubThread) -> bool:
    """Whether two new nodes can form a round."""
    assert hub.thread.is_alive()
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        rounds = form_round(register(zero, 0, started_at=2.0), register(one, 1, started_at=2.0))
        return [message["type"] for message in rounds] == ["Round", "Round"]
