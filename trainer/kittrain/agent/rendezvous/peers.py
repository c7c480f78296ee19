"""The hub's end of its connections: authenticates each one, bounds what it may send, and passes its messages on.

An unauthenticated connection may send two short lines within seconds. If there are too many of them, the oldest one of
the address with the most is closed, so that a flood from one address does not keep others out.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.agent.rendezvous import handshake, messages
from kittrain.agent.rendezvous.handshake import AuthenticationError, Greeting, Introduction, Key, Proof, Session
from kittrain.agent.rendezvous.messages import FROM_NODES, Message, Rejected
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.system.lines import MAX_LINE, PING, enable_keepalive
from kittrain.system.link_watch import LinkWatch
from kittrain.system.port import BACKLOG

MAX_HANDSHAKE_LINE: Final = 1024  # bytes
HANDSHAKE_TIMEOUT: Final = 10.0  # seconds
MAX_UNAUTHENTICATED: Final = BACKLOG  # connections at once: all nodes of a large job
MAX_WARNED_ADDRESSES: Final = 10  # that failed to authenticate
LOST: Final = "is lost"  # why a node is, of which nothing else is known


class PeerListener(Protocol):
    """Receives what authenticated peers send."""

    def message_received(self, peer: Peer, message: Message) -> None:
        """An authenticated peer has sent a message."""

    def connection_lost(self, peer: Peer) -> None:
        """An authenticated peer is gone."""

    def introduction(self) -> Introduction:
        """Who this hub is, and whether it serves."""


class PeerServer:
    """All connections.

    Args:
        key: of the run.
        listener: receives the messages of authenticated peers.
        settings: timeouts.
        warn: called for an address that fails to authenticate.
        max_unauthenticated: connections at once.
    """

    def __init__(
        self,
        key: Key,
        listener: PeerListener,
        *,
        settings: RendezvousSettings,
        warn: Callable[[str], None],
        max_unauthenticated: int = MAX_UNAUTHENTICATED,
    ) -> None:
        self.key = key
        self.listener = listener
        self.settings = settings
        self._warn = warn
        self._max_unauthenticated = max_unauthenticated
        self._unauthenticated: dict[Peer, None] = {}  # the oldest first, as in the next one's values
        self._by_address: defaultdict[str, dict[Peer, None]] = defaultdict(dict)
        self._warned: set[str] = set()
        self._authenticated: set[Peer] = set()

    @property
    def busy(self) -> bool:
        """Whether anybody is connected."""
        return bool(self._authenticated or self._unauthenticated)

    def add(self, peer: Peer) -> None:
        """A connection was made."""
        self._unauthenticated[peer] = self._by_address[peer.address][peer] = None
        if len(self._unauthenticated) > self._max_unauthenticated:
            busiest = max(self._by_address.values(), key=len)
            next(iter(busiest)).abort()

    def discard(self, peer: Peer) -> None:
        """A connection is authenticated or gone."""
        if peer in self._unauthenticated:
            del self._unauthenticated[peer], self._by_address[peer.address][peer]
            if not self._by_address[peer.address]:
                del self._by_address[peer.address]

    def authenticated(self, peer: Peer) -> None:
        """A connection is authenticated."""
        self.discard(peer)
        self._authenticated.add(peer)

    def gone(self, peer: Peer) -> None:
        """A connection has ended."""
        self.discard(peer)
        self._authenticated.discard(peer)

    def drop_silent(self, now: float) -> None:
        """Drop peers whose machines do not answer; call it often. ``now`` is ``time.monotonic()``."""
        for peer in [one for one in self._authenticated if now >= one.next_check]:
            peer.check(now)

    def drop_expired(self, now: float) -> None:
        """Drop connections whose handshake takes too long; call it often. ``now`` is ``time.monotonic()``."""
        while (oldest := next(iter(self._unauthenticated), None)) and now > oldest.since + HANDSHAKE_TIMEOUT:
            oldest.abort()

    def warn_unauthenticated(self, peer: Peer) -> None:
        """A peer sent a greeting, and is gone without a proof that it knows the secret."""
        if peer.address not in self._warned and len(self._warned) < MAX_WARNED_ADDRESSES:
            self._warned.add(peer.address)
            self._warn(
                f"warning: {peer.address} did not prove that it knows this run's secret; its connection was closed"
            )


class Peer(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, server: PeerServer) -> None:
        self._server = server
        self._session: Session | None = None  # once it has sent its greeting
        self._authenticated = False
        self._buffer = bytearray()
        self.since = time.monotonic()
        self.next_check = float("-inf")
        self.address = ""
        self.why_lost = LOST

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See the base class."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        interval, attempts = self._server.settings.keep_alive
        connection = transport.get_extra_info("socket")
        enable_keepalive(connection, interval=interval, attempts=attempts)
        self._link = LinkWatch(connection, lost_after=self._server.settings.lost_after)
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        """See the base class: handle each complete line."""
        self._buffer += data
        seen = len(self._buffer) - len(data)
        while not self._transport.is_closing() and (end := self._buffer.find(b"\n", seen)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            seen = 0
            self._line_received(line)
        if len(self._buffer) > (MAX_LINE if self._authenticated else MAX_HANDSHAKE_LINE):
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """See the base class."""
        self._server.gone(self)
        self._link.close()
        if self._authenticated:
            self._server.listener.connection_lost(self)
        elif self._session:
            self._server.warn_unauthenticated(self)

    def send(self, message: Message) -> None:
        """Send a message, if the peer is authenticated."""
        self.send_text(messages.dump(message))

    def send_text(self, text: bytes) -> None:
        """The same for a message that is a line already."""
        if self._session and self._authenticated and not self._transport.is_closing():
            self._transport.write(self._session.sign(text))

    def reachable_at(self, port: int) -> None:
        """Its machine may be asked at this port whether it is there."""
        self._link.port = port

    def check(self, now: float) -> None:
        """Drop the connection if the machine at its other end does not answer, and have it answer while it is idle."""
        if self._link.is_idle(now) and not self._transport.is_closing():
            self._transport.write(PING)
        if self._link.is_lost(now):
            self.why_lost = f"is lost: its machine has not answered for {self._server.settings.lost_after} s"
            self.abort()
        self.next_check = self._link.next_check

    def close(self) -> None:
        """Close the connection once everything has been sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection and free its memory at once."""
        self._server.discard(self)
        self._buffer.clear()
        self._transport.abort()

    def _line_received(self, line: bytes) -> None:
        try:
            if self._session and self._authenticated:
                if not line:  # of a node whose connection is idle
                    return
                message = messages.load(FROM_NODES, self._session.verify(line))
                self._server.listener.message_received(self, message)
            else:
                self._authenticate(line)
        except AuthenticationError:
            self.abort()
        except MalformedError as error:
            self.send(Rejected(reason=f"the hub cannot decode a message of this node: {error}"))
            self.close()

    def _authenticate(self, line: bytes) -> None:
        if len(line) > MAX_HANDSHAKE_LINE:
            raise MalformedError("too long")
        if self._session is None:
            hub = self._server.listener.introduction()
            answer, self._session = self._server.key.answer(typed.load(Greeting, line), hub)
            self._transport.write(handshake.line(answer))
        else:
            proof: Proof = typed.load(Proof, line)
            self._session.verify_proof(proof.mac)
            self._server.authenticated(self)
            self._authenticated = True
