"""Processes of one host that wait for each other again and again, by Unix sockets and in the calling thread.

Each tells the others that it has come to a meeting, and later waits until all have come. Who has come does not take
that back: who does not come any more says so after the meetings that it has come to. So a meeting takes place for all
processes or for none, also if some of them are asked to leave at that moment. Only if one of three or more ends while
it tells the others, some of these may not learn that it had come.

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
GRACE: Final = 5.0  # seconds that one who has withdrawn waits for the others' word: an agent ends them sooner
CONNECT_SECONDS: Final = 10.0
NUMBER: Final = struct.Struct("=q")  # of a meeting, or the key of who has called
CALL: Final = struct.Struct("=qq")  # who calls, and the key of who is called
GONE: Final = (BrokenPipeError, ConnectionResetError)
CREDENTIALS: Final = struct.Struct("=iII")  # of a peer: process, user, group


class MeetingError(RuntimeError):
    """Another process does not come any more."""


class Meeting:
    """Meetings of the same processes, one after the other. ``withdraw`` may be called from any thread.

    Args:
        peers: a connection of ``Door.connect`` to each of the others.
        timeout: seconds to wait for the others.
    """

    def __init__(self, peers: Sequence[socket.socket], *, timeout: float) -> None:
        self._peers = peers
        self._timeout = timeout
        self._lock = threading.Lock()
        self._number = 0  # of the last meeting that this process has come to
        self._withdrawn: float | None = None  # when; as of time.monotonic
        for one in peers:
            one.settimeout(None)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(1e6 * POLL)))
        _open.add(self)

    def begin(self) -> None:
        """Come to the next meeting, and tell the others. Who has not waited for the last one waits for this one only.

        Raises:
            MeetingError: this process does not come any more.
        """
        with self._lock:
            if self._withdrawn is not None:
                raise MeetingError("Connection closed by peer")
            self._number += 1
            message = NUMBER.pack(self._number)
            for one in self._peers:
                with suppress(*GONE):  # it may have come before: its word is still to be read
                    one.send(message)

    def wait(self) -> None:
        """Wait until all have come to the meeting.

        Raises:
            MeetingError: one does not come any more, or not in time.
        """
        deadline = time.monotonic() + self._timeout
        for one in self._peers:
            while self._receive(one, deadline) < self._number:
                pass

    def withdraw(self) -> None:
        """Come to no more meetings, and tell the others; does not wait."""
        with self._lock:
            if self._withdrawn is None:
                self._withdrawn = time.monotonic()
                for one in self._peers:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_WR)  # what was sent before arrives

    def close(self) -> None:
        """Close the connections: there are no more meetings."""
        self.withdraw()
        self.drop()

    def drop(self) -> None:
        """Close this process's ends of the connections, and say nothing."""
        for one in self._peers:
            one.close()

    def _receive(self, peer: socket.socket, deadline: float) -> int:
        """The number of the next meeting that another process has come to."""
        while True:
            try:
                message = peer.recv(NUMBER.size)
            except BlockingIOError:
                now = time.monotonic()
                if self._withdrawn is not None and now > self._withdrawn + GRACE:
                    raise MeetingError("Connection closed by peer") from None
                if now > deadline:
                    raise MeetingError("Socket Timeout") from None
                continue
            except ConnectionResetError:  # told once, before what was received: it ended with a word of ours unread
                continue
            if len(message) < NUMBER.size:
                raise MeetingError("Connection closed by peer")
            number: int = NUMBER.unpack(message)[0]
            return number


_open: weakref.WeakSet[Meeting] = weakref.WeakSet()


def _drop_in_child() -> None:
    """A forked process keeps no connection open: the others would not see that its parent has ended."""
    for one in _open:
        one.drop()


os.register_at_fork(after_in_child=_drop_in_child)


class Door:
    """Where others of this host reach this process; a context manager, in which the connections are made.

    Attributes:
        address: in this network namespace.
        key: which only those know that it was given to.

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
        self, doors: Sequence[tuple[int, int]], own: int, *, stop: Callable[[], bool] = lambda: False
    ) -> list[socket.socket]:
        """Connect to all others, who call this at the same time.

        Args:
            doors: the address and key of each process, in the same order everywhere.
            own: this process's place in it.
            stop: whether not to wait any more.

        Raises:
            OSError: not all could be reached.
        """
        wait = _Patience(stop)
        found: dict[int, socket.socket] = {}
        try:
            for place, (address, key) in enumerate(doors[:own]):
                found[place] = one = _socket()
                one.connect(f"\0{address:05x}")
                one.send(CALL.pack(own, key))
            while len(found) < len(doors) - 1:
                one = wait.until(lambda: self._listener.accept()[0])
                place = self._caller(one, wait)
                if own < place < len(doors) and place not in found:
                    found[place] = one
                    one.send(NUMBER.pack(doors[place][1]))
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

    def _caller(self, one: socket.socket, wait: _Patience) -> int:
        """The place of who has called; -1: nobody who may."""
        one.settimeout(POLL)
        _, user, _ = CREDENTIALS.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        if user != os.geteuid():
            return -1
        message = wait.receive(one, CALL.size)
        if len(message) < CALL.size or not _equal(message[NUMBER.size :], NUMBER.pack(self.key)):
            return -1
        place: int = CALL.unpack(message)[0]
        return place


class _Patience:
    """Waits as long as one who connects does."""

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
