"""Authenticated messages and files between the processes that keep copies.

    both:  greeting {nonce}               each its own
    both:  proof {mac}                    an HMAC-SHA256 by the run's key over both nonces and the direction
    both:  mac, message                   an HMAC over direction, sequence number and message, a line each
           block, mac                     a file: blocks of known sizes, each with an HMAC over its number and bytes

What is forged, replayed, reordered or cut ends the connection. Nothing is encrypted, as nothing between ranks is.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.system.files import Buffer

PROTOCOL: Final = b"kitctl copies 1\0"
NONCE: Final = 16  # bytes
MAC: Final = 32  # bytes
BLOCK: Final = 1 << 20  # bytes of a file that one HMAC covers
MAX_GREETING: Final = 256  # bytes
MAX_LINE: Final = 1 << 24  # bytes: what a node holds of some snapshots of thousands of ranks
STRANGER: Final = "the other end does not know this run's secret: another secret, or another run"
CLOSED: Final = "the connection was closed"
GREETING: Final = 5.0  # seconds until the other end has proved itself
TIMEOUT: Final = 30.0  # seconds for a message or a block


class PeerLostError(Exception):
    """The other end is gone, does not know the run's secret, or has sent what it should not."""


class Channel:
    """One end of a connection after the handshake.

    Args:
        connection: a stream socket, which is closed with this.
        key: of the run.
        client: whether this end has opened it.

    Raises:
        PeerLostError: the other end does not prove that it knows the key.
    """

    def __init__(self, connection: socket.socket, key: bytes, *, client: bool) -> None:
        self._connection = connection
        self._rest = bytearray()
        self._sent = self._received = 0
        connection.settimeout(GREETING)
        try:
            self._own, self._other = self._keys(key, client=client)
            self._write(_mac(self._own, b"proof").hex().encode() + b"\n")
            if not hmac.compare_digest(self._line(MAX_GREETING), _mac(self._other, b"proof").hex().encode()):
                raise PeerLostError(STRANGER)  # noqa: TRY301  as all others here
            connection.settimeout(TIMEOUT)
        except (PeerLostError, OSError) as error:
            self.close()
            raise PeerLostError(str(error)) from error

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            PeerLostError: the other end is gone.
        """
        text = typed.dump(message)
        self._write(self._signed(text).hex().encode() + text + b"\n")

    def receive(self, kind: Any, timeout: float | None = TIMEOUT) -> Any:
        """The next message, of a type.

        Raises:
            PeerLostError: there is none, or it is not the other end's next message.
        """
        self._connection.settimeout(timeout)
        line = self._line(MAX_LINE)
        self._connection.settimeout(TIMEOUT)
        mac, text = line[: 2 * MAC], line[2 * MAC :]
        if not hmac.compare_digest(mac, self._expected(text).hex().encode()):
            raise PeerLostError("a message was modified in transit")
        try:
            return typed.load(kind, text)
        except MalformedError as error:
            raise PeerLostError(f"a message that this version does not know: {error}") from error

    def send_file(self, path: Path, size: int) -> None:
        """Send a file's first bytes.

        Raises:
            PeerLostError: the other end is gone.
            OSError: the file cannot be read; the connection is of no use then.
        """
        memory = memoryview(bytearray(min(BLOCK, size)))
        with path.open("rb", buffering=0) as file:
            while size:
                block = memory[: min(BLOCK, size)]
                if not _fill(block, file.readinto):
                    raise OSError(f"{path.name} is shorter than it was")
                self._write(block)
                self._write(self._signed(block))
                size -= len(block)

    def receive_file(self, size: int) -> Iterator[memoryview]:
        """The blocks of a file of this size, each in the same memory.

        Raises:
            PeerLostError: it does not come whole, or is not what the other end has sent.
        """
        memory = memoryview(bytearray(min(BLOCK, size)))
        while size:
            block = memory[: min(BLOCK, size)]
            self._receive(block)
            if not hmac.compare_digest(self._mac(), self._expected(block)):
                raise PeerLostError("a file was modified in transit")
            size -= len(block)
            yield block

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _keys(self, key: bytes, *, client: bool) -> tuple[hmac.HMAC, hmac.HMAC]:
        """Exchange nonces; returns the keys of both directions."""
        own = secrets.token_hex(NONCE).encode()
        self._write(own + b"\n")
        other = self._line(MAX_GREETING)
        nonces = own + b"\0" + other if client else other + b"\0" + own
        session = hmac.digest(key, PROTOCOL + nonces, "sha256")
        ends = [hmac.new(session, name, "sha256") for name in (b"client\0", b"server\0")]
        return (ends[0], ends[1]) if client else (ends[1], ends[0])

    def _signed(self, content: Buffer) -> bytes:
        self._sent += 1
        return _mac(self._own, b"%d\0" % self._sent, content)

    def _expected(self, content: Buffer) -> bytes:
        self._received += 1
        return _mac(self._other, b"%d\0" % self._received, content)

    def _write(self, content: Buffer) -> None:
        try:
            self._connection.sendall(content)
        except OSError as error:
            raise PeerLostError(str(error)) from error

    def _line(self, longest: int) -> bytes:
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > longest:
                raise PeerLostError(f"a message of more than {longest} bytes")
            self._more(1 << 16)
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

    def _mac(self) -> bytes:
        found = bytearray(MAC)
        self._receive(memoryview(found))
        return bytes(found)

    def _receive(self, memory: memoryview) -> None:
        """Fill memory with what comes next."""
        there = min(len(memory), len(self._rest))
        memory[:there] = self._rest[:there]
        del self._rest[:there]
        try:
            whole = _fill(memory[there:], self._connection.recv_into)
        except OSError as error:
            raise PeerLostError(str(error) or type(error).__name__) from error
        if not whole:
            raise PeerLostError(CLOSED)

    def _more(self, size: int) -> None:
        try:
            found = self._connection.recv(size)
        except OSError as error:
            raise PeerLostError(str(error) or type(error).__name__) from error
        if not found:
            raise PeerLostError(CLOSED)
        self._rest += found


def _fill(memory: memoryview, read: Callable[[memoryview], int | None]) -> bool:
    """Fill memory by calls that read a part of it; whether there was enough."""
    while memory and (count := read(memory)):
        memory = memory[count:]
    return not memory


def _mac(initial: hmac.HMAC, *parts: Buffer) -> bytes:
    code = initial.copy()
    for part in parts:
        code.update(part)
    return code.digest()
