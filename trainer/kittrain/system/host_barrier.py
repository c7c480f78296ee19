"""A barrier of processes on one host, in two phases: by Unix sockets, and in the calling thread.

Each process arrives, which tells the others, works on, and later waits until all have arrived. An arrival is never
taken back: a process that leaves says so after its arrivals. So all processes pass a barrier or none does, also if
some are asked to leave at that moment. Only if one of three or more ends while it tells the others that it has
arrived, some of these may not learn of it.

No file is needed, and a process that ends leaves nothing: the kernel closes its connections. The addresses are those of
the network namespace. Who connects has to be of the same user, and to know a key.

Why: decision 60.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self, TypeVar

T = TypeVar("T")

POLL: Final = 0.02  # seconds between two looks whether to go on waiting
GRACE: Final = 5.0  # seconds that a process that has left waits for the others' word: an agent ends them sooner
CONNECT_SECONDS: Final = 10.0
NUMBER: Final = struct.Struct("=q")  # how often the barrier was used, or the key of the process that connects
CALL: Final = struct.Struct("=qq")  # the place of the process that connects, and the key of the one that listens
GONE: Final = (BrokenPipeError, ConnectionResetError)
CREDENTIALS: Final = struct.Struct("=iII")  # of a peer: process, user, group


class BarrierError(RuntimeError):
    """Not all arrive any more: a process has left, has ended, or is late."""


class HostBarrier:
    """A barrier that the same processes use again and again. ``leave`` may be called from any thread.

    Args:
        peers: a connection of ``Listener.connect`` to each of the others.
        timeout: seconds to wait for the others.
    """

    def __init__(self, peers: Sequence[socket.socket], *, timeout: float) -> None:
        self._peers = peers
        self._timeout = timeout
        self._lock = threading.Lock()
        self._arrivals = 0
        self._left: float | None = None  # when; as of time.monotonic
        for one in peers:
            one.settimeout(None)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(1e6 * POLL)))
        _open.add(self)

    def arrive(self) -> None:
        """Arrive, and tell the others; ``wait`` is for the last arrival only, if this is called again before it.

        Raises:
            BarrierError: this process has left.
        """
        with self._lock:
            if self._left is not None:
                raise BarrierError("Connection closed by peer")
            self._arrivals += 1
            message = NUMBER.pack(self._arrivals)
            for one in self._peers:
                with suppress(*GONE):  # it may have arrived before: that is still to be read
                    one.send(message)

    def wait(self) -> None:
        """Wait until all have arrived as often as this process has.

        Raises:
            BarrierError: one has left or ended before, or is late.
        """
        deadline = time.monotonic() + self._timeout
        for one in self._peers:
            while self._receive(one, deadline) < self._arrivals:
                pass

    def leave(self) -> None:
        """Arrive no more, and tell the others; does not wait."""
        with self._lock:
            if self._left is None:
                self._left = time.monotonic()
                for one in self._peers:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_WR)  # what was sent before arrives

    def close(self) -> None:
        """Leave, and close the connections."""
        self.leave()
        self.drop()

    def drop(self) -> None:
        """Close this process's ends of the connections, and say nothing."""
        for one in self._peers:
            one.close()

    def _receive(self, peer: socket.socket, deadline: float) -> int:
        """How often another process has arrived, as its next message says."""
        while True:
            try:
                message = peer.recv(NUMBER.size)
            except BlockingIOError:
                now = time.monotonic()
                if self._left is not None and now > self._left + GRACE:
                    raise BarrierError("Connection closed by peer") from None
                if now > deadline:
                    raise BarrierError("Socket Timeout") from None
                continue
            except ConnectionResetError:  # told once, before what was received: it ended with a message of ours unread
                continue
            if len(message) < NUMBER.size:
                raise BarrierError("Connection closed by peer")
            number: int = NUMBER.unpack(message)[0]
            return number


_open: weakref.WeakSet[HostBarrier] = weakref.WeakSet()


def _drop_in_child() -> None:
    """A forked process keeps no connection open: the others would not see that its parent has ended."""
    for one in _open:
        one.drop()


os.register_at_fork(after_in_child=_drop_in_child)


class Listener:
    """Accepts the connections of the other processes; a context manager, in which these are made.

    Attributes:
        address: in this network namespace.
        key: a secret that only those know who were given it.

    Raises:
        OSError: this system has no such addresses.
    """

    def __init__(self) -> None:
        self.key = secrets.randbits(63)
        self._listener = _socket()
        try:
            self._listener.bind("")  # the kernel chooses a name that is no file's
            self._listener.listen()
            self.address = int(bytes(self._listener.getsockname())[1:], 16)
        except (OSError, ValueError) as error:
            self._listener.close()
            raise OSError(f"no address for others of this host: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def connect(
        self, listeners: Sequence[tuple[int, int]], own: int, *, stop: Callable[[], bool] = lambda: False
    ) -> list[socket.socket]:
        """Connect to all others, who call this at the same time.

        Args:
            listeners: the address and key of each process, in the same order everywhere.
            own: this process's place in it.
            stop: whether not to wait any more.

        Raises:
            OSError: not all could be reached.
        """
        wait = _Deadline(stop)
        found: dict[int, socket.socket] = {}
        try:
            for place, (address, key) in enumerate(listeners[:own]):
                found[place] = one = _socket()
                one.connect(f"\0{address:05x}")
                one.send(CALL.pack(own, key))
            while len(found) < len(listeners) - 1:
                one = wait.until(lambda: self._listener.accept()[0])
                place = self._caller(one, wait)
                if own < place < len(listeners) and place not in found:
                    found[place] = one
                    one.send(NUMBER.pack(listeners[place][1]))
                else:
                    one.close()
            for place in range(own):
                if not _equal(wait.receive(found[place], NUMBER.size), NUMBER.pack(self.key)):
                    raise ConnectionRefusedError("another process answers at that address")
        except OSError:
            for one in found.values():
                one.close()
            raise
        return [found[place] for place in sorted(found)]

    def _caller(self, one: socket.socket, wait: _Deadline) -> int:
        """The place of the process that has connected; -1: it has no right to."""
        one.settimeout(POLL)
        _, user, _ = CREDENTIALS.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        if user != os.geteuid():
            return -1
        message = wait.receive(one, CALL.size)
        if len(message) < CALL.size or not _equal(message[NUMBER.size :], NUMBER.pack(self.key)):
            return -1
        place: int = CALL.unpack(message)[0]
        return place


class _Deadline:
    """Repeats what may have to wait, while processes connect."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + CONNECT_SECONDS

    def until(self, act: Callable[[], T]) -> T:
        """What a function returns that may have to wait.

        Raises:
            OSError: it takes too long, or has failed.
        """
        while True:
            try:
                return act()
            except TimeoutError:
                if self._stop() or time.monotonic() > self._deadline:
                    raise

    def receive(self, one: socket.socket, size: int) -> bytes:
        """A message; likewise."""
        return self.until(lambda: one.recv(size))


def _equal(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


def _socket() -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(POLL)
    return one
