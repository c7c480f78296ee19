"""A node's authenticated connection to the hub, over which typed messages are sent and received."""

from __future__ import annotations

import math
import socket
import time
from dataclasses import dataclass
from typing import Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.agent.rendezvous import handshake, messages
from kittrain.agent.rendezvous.handshake import Answer, AuthenticationError, Introduction, Key, Proof, Session
from kittrain.agent.rendezvous.messages import FROM_HUB, Message
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.system.lines import PING, ConnectionLost, LineStream, enable_keepalive
from kittrain.system.link_watch import LinkWatch

MAX_HANDSHAKE_LINE: Final = 1024  # bytes


class ConnectionSilent(ConnectionLost):
    """The machine at the other end does not answer: nobody has closed the connection."""


class Connection:
    """A node's end, after the handshake."""

    def __init__(self, lines: LineStream, session: Session, link: LinkWatch) -> None:
        self._lines = lines
        self._session = session
        self._link = link

    @property
    def descriptor(self) -> int:
        """Can be read when something has arrived; -1 once the connection is closed."""
        return self._lines.descriptor

    def send(self, message: Message) -> None:
        """Send a message to the hub.

        Raises:
            ConnectionLost: it is gone.
        """
        self._lines.write(self._session.sign(messages.dump(message)))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The hub's next message; None if none arrives within ``timeout`` seconds.

        Raises:
            ConnectionLost: the hub is gone, its machine does not answer, or the message is not authentic.
        """
        line = self._read(timeout)
        try:
            return None if line is None else messages.load(FROM_HUB, self._session.verify(line))
        except (AuthenticationError, MalformedError) as error:
            raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        """Close it; the hub notices that without a message."""
        self._link.close()
        self._lines.close()

    def _read(self, timeout: float | None) -> bytes | None:
        """The next line that says something; meanwhile, watch the link."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now >= self._link.next_check:
                self._look(now)
            line = self._lines.read(max(min(self._link.next_check, deadline) - now, 0.0))
            if line or (line is None and time.monotonic() >= deadline):
                return line

    def _look(self, now: float) -> None:
        if self._link.is_idle(now):
            self._lines.write(PING)
        if self._link.is_lost(now):
            raise ConnectionSilent("its machine does not answer")


@dataclass(frozen=True)
class Opened:
    """A connection, and who is at its other end."""

    connection: Connection
    hub: Introduction
    address: str  # as ``address:port``


def open_connection(
    host: tuple[str, int], key: Key, *, settings: RendezvousSettings, timeouts: tuple[float, float]
) -> Opened:
    """Connect to a hub.

    Args:
        host: its name or address, and the port there.
        key: of the run.
        settings: timeouts of the connection.
        timeouts: seconds for the connection, and for the hub's answer.

    Raises:
        OSError: nothing can be reached there.
        ConnectionLost, AuthenticationError, MalformedError: what answers there is no hub of this run.
    """
    connection = socket.create_connection(host, timeout=timeouts[0])
    enable_keepalive(connection, interval=settings.keep_alive[0], attempts=settings.keep_alive[1])
    lines = LineStream(connection)
    try:
        address, number, *_ = connection.getpeername()
        link = LinkWatch(connection, lost_after=settings.lost_after, port=number)
        session, hub = _authenticate(lines, key, timeouts[1])
    except BaseException:
        lines.close()
        raise
    return Opened(Connection(lines, session, link), hub, f"{address}:{number}")


def _authenticate(lines: LineStream, key: Key, timeout: float) -> tuple[Session, Introduction]:
    """Run the node's side of the handshake."""
    greeting = key.greet()
    lines.write(handshake.line(greeting))
    answer: Answer = typed.load(Answer, _read_answer(lines, timeout))
    session = key.accept(greeting, answer)
    lines.write(handshake.line(Proof(mac=session.proof)))
    return session, answer.hub


def _read_answer(lines: LineStream, timeout: float) -> bytes:
    try:
        line = lines.read(timeout, longest=MAX_HANDSHAKE_LINE)
    except ConnectionLost as error:
        raise ConnectionLost(f"no answer; {error}") from error
    if line is None:
        raise ConnectionLost(f"no answer within {timeout:.0f} s")
    return line
