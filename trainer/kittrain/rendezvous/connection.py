"""A node's connection to the hub: both have proved themselves, and each message is of a known type."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kittrain.rendezvous import handshake, messages
from kittrain.rendezvous.handshake import Answer, ForgedError, Key, Proof, Session
from kittrain.rendezvous.messages import HUBS, Message
from kittrain.system import port, typed
from kittrain.system.decoders import MalformedError
from kittrain.system.lines import ConnectionLost, Lines, notice_silence

WORDS: Final = 1024  # bytes of a line before both ends have proved themselves
ANSWER_PATIENCE: Final = 10.0  # seconds for the hub's: it may have thousands to answer


class Connection:
    """A node's end, after both have proved themselves."""

    def __init__(self, lines: Lines, session: Session) -> None:
        self._lines = lines
        self._session = session

    def send(self, message: Message) -> None:
        """Tell the hub.

        Raises:
            ConnectionLost: it is gone.
        """
        self._lines.write(self._session.seal(messages.dump(message)))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The hub's next message; None if none has arrived within ``timeout`` seconds.

        Raises:
            ConnectionLost: it is gone, or what arrived is not from it.
        """
        line = self._lines.read(timeout)
        try:
            return None if line is None else messages.load(HUBS, self._session.open(line))
        except (ForgedError, MalformedError) as error:
            raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        """Close it; the hub is told by that alone."""
        self._lines.close()


def connect(
    host: tuple[str, int],
    key: Key,
    *,
    silence: tuple[int, int],
    nodes: int,
    deadline: float,
    waiting: Callable[[str], None],
) -> Connection:
    """Connect to the hub that knows the run's secret; whoever else is there may be gone the next time.

    Args:
        host: node 0's name or address, and the port there.
        key: of the run.
        silence: seconds between two signs of life of a silent connection, and how many may be missing.
        nodes: that may all be at it.
        deadline: when to give up, in ``time.monotonic()``.
        waiting: told why it has to wait, before each further attempt.

    Raises:
        TimeoutError: there was none in time.
    """
    began = time.monotonic()
    while True:
        connection = port.reach(*host, deadline=deadline, nodes=nodes, waiting=waiting)
        notice_silence(connection, interval=silence[0], attempts=silence[1])
        lines = Lines(connection)
        try:
            return Connection(lines, _prove(lines, key))
        except (ConnectionLost, ForgedError, MalformedError) as error:
            lines.close()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no rendezvous of this run at {host[0]}:{host[1]}: {error}") from error
            waiting(f"waiting for the rendezvous of this run at {host[0]}:{host[1]} ({error})")
        port.rest(began, nodes=nodes)


def _prove(lines: Lines, key: Key) -> Session:
    """Have the hub prove that it knows the run's secret, and prove that this node does."""
    greeting = key.greet()
    lines.write(handshake.line(greeting))
    answer: Answer = typed.load(Answer, _hear(lines))
    session = key.accept(greeting, answer)
    lines.write(handshake.line(Proof(mac=session.proof)))
    return session


def _hear(lines: Lines) -> bytes:
    try:
        line = lines.read(ANSWER_PATIENCE, longest=WORDS)
    except ConnectionLost as error:
        raise ConnectionLost(f"it does not answer; {error}") from error
    if line is None:
        raise ConnectionLost(f"it does not answer within {ANSWER_PATIENCE:.0f} s")
    return line
