"""Newline-delimited text and JSON over a stream socket."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any, Final

from kitjob import typed
from kitjob.decoders import MalformedError

MAX_LINE: Final = 1 << 26  # bytes per line; enough for the ranks of ten thousand nodes

CLOSED: Final = "the connection was closed"
WRITE_TIMEOUT: Final = 60.0  # seconds, if the other end takes nothing any more

PING: Final = b"\n"  # an empty line, which has the other end's kernel answer and means nothing else

Message = dict[str, Any]


class ConnectionLost(Exception):
    """The peer is gone, or sent something malformed."""


class LineStream:
    """One end of a connection; buffers incomplete lines.

    Args:
        connection: a stream socket, owned by this object from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    @property
    def descriptor(self) -> int:
        """Can be read when something has arrived; -1 once the connection is closed."""
        return self._connection.fileno()

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            ConnectionLost: the connection is closed.
        """
        self.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none arrives within ``timeout`` seconds.

        Raises:
            ConnectionLost: the connection is closed, or the line is not a JSON object.
        """
        line = self.read(timeout)
        try:
            message: Message | None = None if line is None else typed.load(dict[str, Any], line)
        except MalformedError as error:
            raise ConnectionLost(str(error)) from error
        return message

    def write(self, lines: bytes) -> None:
        """Send whole lines.

        Raises:
            ConnectionLost: the connection is closed.
        """
        self._connection.settimeout(WRITE_TIMEOUT)
        try:
            self._connection.sendall(lines)
        except OSError as error:
            raise _lost(error) from error

    def read(self, timeout: float | None = None, *, longest: int = MAX_LINE) -> bytes | None:
        """The next line, without its newline; None if none arrives within ``timeout`` seconds.

        Raises:
            ConnectionLost: the connection is closed, or the line is longer than ``longest`` bytes.
        """
        while b"\n" not in self._rest:
            if len(self._rest) > longest:
                raise ConnectionLost(f"a line of more than {longest} bytes")
            self._connection.settimeout(timeout)
            try:
                data = self._connection.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError as error:
                raise _lost(error) from error
            if not data:
                raise ConnectionLost(CLOSED)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _lost(error: OSError) -> ConnectionLost:
    """Who has just written to an end that was closed is told so in other words."""
    return ConnectionLost(CLOSED if isinstance(error, ConnectionResetError | BrokenPipeError) else str(error))


def enable_keepalive(connection: socket.socket, *, interval: int, attempts: int) -> None:
    """Have the kernel end an idle connection whose peer has not answered for ``interval * attempts`` seconds.

    TCP keep-alive: the kernels answer each other, so a busy process does not look dead and no thread is needed. It does
    not run while sent data is unacknowledged. ``TCP_USER_TIMEOUT`` would then, but where packets are lost Linux (6.18)
    measures it from a loss long ago, and ends connections that work; ``LinkWatch`` decides, and writing has a timeout.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, attempts)
    if sys.platform == "darwin":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPALIVE, interval)
    else:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval)
