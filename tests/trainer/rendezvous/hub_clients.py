"""A hub in this process, and bare connections to it, as strangers and members make them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any, Self

from kittrain.rendezvous import handshake
from kittrain.rendezvous.handshake import Answer, Greeting, Key, Proof, Session
from kittrain.rendezvous.hang_detector import Vigil
from kittrain.rendezvous.hub import Hub
from kittrain.rendezvous.membership import Roster
from kittrain.system import port, typed

KEY = Key(b"0123456789abcdef", "run-7")
HELLO = {"say": "hello", "node": 1, "born": 1.0, "pod": "run-7-1"}
JOIN = {"say": "join", "address": "127.0.0.1", "port": 4711, "round": 0, "size": 0}


class Served:
    """A hub for two nodes: a context."""

    def __init__(self, *, strangers: int = 4096) -> None:
        self.warnings: list[str] = []
        roster = Roster(fewest=2, most=2, last_call=1.0)
        vigil = Vigil(silence=30.0, stopping=30.0)
        hub = Hub(KEY, roster, vigil, interval=1, attempts=5, warn=self.warnings.append)
        hub._door._most = strangers
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


class Wire:
    """A bare connection to a hub; a context."""

    def __init__(self, address: tuple[str, int], *, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(address, timeout=60, source_address=(source, 0))
        self._file = self.socket.makefile("rb")
        self.session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are; the hub may have hung up already."""
        try:
            self.socket.sendall(data)
        except OSError:
            return

    def read(self) -> bytes:
        """All that the hub says until it hangs up."""
        try:
            return self._file.read()
        except ConnectionResetError:
            return b""

    def readline(self) -> bytes:
        """The hub's next line."""
        return self._file.readline()

    def greet(self, greeting: Greeting) -> Answer:
        """The hub's answer to a stranger."""
        self.send(handshake.line(greeting))
        answer: Answer = typed.load(Answer, self.readline())
        return answer

    def prove(self, key: Key = KEY) -> Self:
        """Become a member."""
        greeting = key.greet()
        self.session = key.accept(greeting, self.greet(greeting))
        self.send(handshake.line(Proof(mac=self.session.proof)))
        return self

    def say(self, message: Any) -> None:
        """A member's message, whatever it is."""
        self.say_text(json.dumps(message).encode())

    def say_text(self, text: bytes) -> None:
        """A member's line."""
        assert self.session
        self.send(self.session.seal(text))

    def hear(self) -> dict[str, Any]:
        """The hub's next message, but for how fast ranks are; none once it has hung up."""
        assert self.session
        while line := self.readline():
            told: dict[str, Any] = json.loads(self.session.open(line[:-1]))
            if told["say"] != "paces":
                return told
        return {}


def enter(wire: Wire, index: int, *, born: float = 1.0) -> Wire:
    """Be a node."""
    wire.prove()
    wire.say(HELLO | {"node": index, "born": born})
    return wire


def formed(*nodes: Wire) -> list[dict[str, Any]]:
    """The round of nodes that have entered."""
    for node in nodes:
        node.say(JOIN)
    return [node.hear() for node in nodes]


def works(hub: Served) -> bool:
    """Whether two new nodes find each other there."""
    assert hub.thread.is_alive()
    with Wire(hub.address) as zero, Wire(hub.address) as one:
        rounds = formed(enter(zero, 0, born=2.0), enter(one, 1, born=2.0))
        return [told["say"] for told in rounds] == ["round", "round"]
