"""Decides whether the machine at the other end of a connection still answers, from what the kernels exchange.

A kernel acknowledges what arrives even while its processes are busy, so silence is not that of a process. TCP doubles
the time between two attempts after each loss, so after a black-out a connection stays silent for as long again. A new
connection does not: while this one is silent, others are opened in quick succession, and any answer counts, also a
refusal.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import sys
from typing import Final

PROBE_INTERVAL: Final = 0.15  # seconds between two new connections
MAX_PROBES: Final = 6  # open at once
TOLERATED: Final = 1.0  # seconds less than until a loss for which a network may be silent; what is asked later counts
MIN_ASKED: Final = 5  # times without an answer: whoever was suspended, or had no processor, asks first
PINGS: Final = 6  # messages that an idle connection carries in the time after which its other end is lost
LAST_RECEIVED: Final = struct.Struct("=52xII")  # tcp_info (tcp(7)): ms since data, and since an acknowledgement
ANSWERS: Final = frozenset({0, errno.ECONNREFUSED})


class LinkWatch:
    """Watches one connection. ``now`` is ``time.monotonic()``.

    Args:
        connection: connected.
        lost_after: seconds without an answer after which the other end is lost.
        port: where the machine at the other end may be asked; 0: unknown, so only this connection tells.

    Attributes:
        port: may change.
        next_check: when ``is_lost`` has to be called next.
    """

    def __init__(self, connection: socket.socket, *, lost_after: float, port: int = 0) -> None:
        self._connection = connection
        self._lost_after = lost_after
        self._suspected_after = max(0.4 * lost_after, 2 * self.ping_interval)
        self._probes: list[socket.socket] = []
        self._asking = False
        self._asked = 0  # times since the machine should have answered again
        self._answered_at = float("-inf")
        self.port = port
        self.next_check = float("-inf")

    @property
    def ping_interval(self) -> float:
        """Seconds after which an idle connection has to carry something, so that the kernels have to answer."""
        return self._lost_after / PINGS

    def is_idle(self, now: float) -> bool:
        """Whether the connection has to carry something now; each end looks, since the other's process may be slow."""
        silence = self.silence(now)
        return silence is not None and silence >= self.ping_interval

    def is_lost(self, now: float) -> bool:
        """Whether the other end is lost; call it at ``next_check``."""
        silence = self.silence(now)
        if silence is None or silence < self._suspected_after:
            self._answered(now)
            left = 1.0 if silence is None else max(self._suspected_after - silence, PROBE_INTERVAL)
            self.next_check = now + min(left, self.ping_interval)
            return False
        self.next_check = now + PROBE_INTERVAL
        if any(_has_answered(probe) for probe in self._probes):
            self._answered(now)
            return False
        if silence >= self._lost_after and self._asked >= MIN_ASKED:
            return True
        self._asking = True
        self._asked += silence >= self._lost_after - TOLERATED
        self._probe(now)
        return False

    def silence(self, now: float) -> float | None:
        """Seconds since the other machine has answered; None where the kernel does not tell."""
        if sys.platform != "linux":
            return None
        try:
            info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_RECEIVED.size)
        except OSError:  # it is closed, which whoever reads from it notices
            return None
        data, acknowledged = LAST_RECEIVED.unpack(info)
        return float(min(data / 1000, acknowledged / 1000, now - self._answered_at))

    def close(self) -> None:
        """Close what was opened to ask; the connection stays as it is."""
        while self._probes:
            self._probes.pop().close()

    def _answered(self, now: float) -> None:
        if self._asking:
            self._answered_at, self._asking, self._asked = now, False, 0
            self.close()

    def _probe(self, now: float) -> None:
        """Open one more connection to the other machine, without waiting for it."""
        if not self.port:
            return
        try:
            host, _, *scope = self._connection.getpeername()
            probe = socket.socket(self._connection.family)
        except OSError:  # the connection is closed, or there are too many open files
            return
        probe.settimeout(0)
        outcome = probe.connect_ex((host, self.port, *scope))
        if outcome != errno.EINPROGRESS:  # no packet has left this machine, if nobody has answered: it has no way there
            probe.close()
            if outcome in ANSWERS:
                self._answered(now)
            return
        self._probes.append(probe)
        if len(self._probes) > MAX_PROBES:
            self._probes.pop(0).close()


def _has_answered(probe: socket.socket) -> bool:
    poll = select.poll()
    poll.register(probe, select.POLLOUT)
    return bool(poll.poll(0)) and probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in ANSWERS
