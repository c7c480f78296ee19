"""Lines over a stream, and JSON objects as lines."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any, Final

from kittrain.system import typed
from kittrain.system.decoders import MalformedError

LONGEST: Final = 1 << 26  # bytes of one line: the ranks of ten thousand nodes fit

Message = dict[str, Any]


class ConnectionLost(Exception):
    """The other end is gone, or says what nobody can read."""


class Lines:
    """A connection's end. What has arrived in pieces is kept until it is whole.

    Args:
        connection: of a stream; belongs to this object from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            ConnectionLost: nobody would read it.
        """
        self.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none has arrived within ``timeout`` seconds.

        Raises:
            ConnectionLost: none will arrive any more.
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
            ConnectionLost: nobody would read them.
        """
        self._connection.settimeout(None)
        try:
            self._connection.sendall(lines)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def read(self, timeout: float | None = None, *, longest: int = LONGEST) -> bytes | None:
        """The next line, without its end; None if none has arrived within ``timeout`` seconds.

        Raises:
            ConnectionLost: none will arrive any more, or one of more than ``longest`` bytes.
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
                raise ConnectionLost(str(error)) from error
            if not data:
                raise ConnectionLost("the connection was closed")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        """Close the connection; the other end is told by that alone."""
        self._connection.close()


def notice_silence(connection: socket.socket, *, interval: int, attempts: int) -> None:
    """Have the kernel end a connection whose other end has not answered for ``interval * attempts`` seconds.

    The kernels answer each other, so neither side needs a thread, and a process that is busy is not taken for dead.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, attempts)
    if sys.platform == "darwin":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPALIVE, interval)
    else:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval)
    if sys.platform == "linux":  # keep-alive does not run while something sent is not acknowledged
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, interval * attempts * 1000)
