"""A node's authenticated connection to the hub, over which typed messages are sent and received."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.agent.rendezvous import handshake, messages
from kittrain.agent.rendezvous.handshake import Answer, AuthenticationError, Key, Proof, Session
from kittrain.agent.rendezvous.messages import FROM_HUB, Message
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.system import port
from kittrain.system.lines import ConnectionLost, LineStream, enable_keepalive
from kittrain.system.link_watch import LinkWatch

MAX_HANDSHAKE_LINE: Final = 1024  # bytes
ANSWER_TIMEOUT: Final = 10.0  # seconds for the hub's answer: thousands of nodes may connect at once


class Connection:
    """A node's end, after the handshake."""

    def __init__(self, lines: LineStream, session: Session, link: LinkWatch) -> None:
        self._lines = lines
        self._session = session
        self._link = link

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
            if now >= self._link.next_check and self._link.is_lost(now):
                raise ConnectionLost("its machine does not answer")
            line = self._lines.read(max(min(self._link.next_check, deadline) - now, 0.0))
            if line or (line is None and time.monotonic() >= deadline):
                return line


def connect(
    host: tuple[str, int],
    key: Key,
    *,
    settings: RendezvousSettings,
    nodes: int,
    deadline: float,
    waiting: Callable[[str], None],
) -> Connection:
    """Connect to the hub, and try again as long as something at its address does not know the run's secret.

    Args:
        host: node 0's name or address, and the port there.
        key: of the run.
        settings: timeouts.
        nodes: how many may try to connect at once.
        deadline: when to give up, in ``time.monotonic()``.
        waiting: called with the reason before each further attempt.

    Raises:
        TimeoutError: the hub could not be reached in time.
    """
    began = time.monotonic()
    while True:
        connection = port.connect(*host, deadline=deadline, nodes=nodes, waiting=waiting)
        enable_keepalive(connection, interval=settings.keep_alive[0], attempts=settings.keep_alive[1])
        lines = LineStream(connection)
        link = LinkWatch(connection, lost_after=settings.lost_after, port=connection.getpeername()[1])
        try:
            return Connection(lines, _authenticate(lines, key), link)
        except (ConnectionLost, AuthenticationError, MalformedError) as error:
            lines.close()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no rendezvous of this run at {host[0]}:{host[1]}: {error}") from error
            waiting(f"waiting for the rendezvous of this run at {host[0]}:{host[1]} ({error})")
        port.sleep_backoff(began, nodes=nodes)


def _authenticate(lines: LineStream, key: Key) -> Session:
    """Run the node's side of the handshake."""
    greeting = key.greet()
    lines.write(handshake.line(greeting))
    answer: Answer = typed.load(Answer, _read_answer(lines))
    session = key.accept(greeting, answer)
    lines.write(handshake.line(Proof(mac=session.proof)))
    return session


def _read_answer(lines: LineStream) -> bytes:
    try:
        line = lines.read(ANSWER_TIMEOUT, longest=MAX_HANDSHAKE_LINE)
    except ConnectionLost as error:
        raise ConnectionLost(f"no answer; {error}") from error
    if line is None:
        raise ConnectionLost(f"no answer within {ANSWER_TIMEOUT:.0f} s")
    return line
