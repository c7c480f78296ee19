"""The hub's end of each connection: a stranger until it has proved itself, and held to what a node may say then.

A stranger may send two short lines, within seconds. Of what strangers there are at once, those of the address that has
most of them go first, so that whoever connects a thousand times is in nobody's way but their own.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from kittrain.rendezvous import handshake, messages
from kittrain.rendezvous.handshake import ForgedError, Greeting, Key, Proof, Session
from kittrain.rendezvous.messages import NODES, Message, Refused
from kittrain.system import typed
from kittrain.system.decoders import MalformedError
from kittrain.system.lines import LONGEST, notice_silence
from kittrain.system.port import BACKLOG

WORDS: Final = 1024  # bytes that a stranger may send
PATIENCE: Final = 10.0  # seconds that one may take to prove itself
STRANGERS: Final = BACKLOG  # at once: all nodes of a large job
TOLD: Final = 10  # addresses without a proof that are told of


class Host(Protocol):
    """Who listens behind the door."""

    def hear(self, peer: Peer, message: Message) -> None:
        """A peer that has proved itself says something."""

    def lose(self, peer: Peer) -> None:
        """A peer that has proved itself is gone."""


class Door:
    """All connections.

    Args:
        key: of the run.
        host: told of those that have proved themselves.
        silence: seconds between two signs of life of a silent connection, and how many may be missing.
        warn: told of those that tried to, and do not know the secret.
        strangers: how many there may be at once.
    """

    def __init__(
        self,
        key: Key,
        host: Host,
        *,
        silence: tuple[int, int],
        warn: Callable[[str], None],
        strangers: int = STRANGERS,
    ) -> None:
        self.key = key
        self.host = host
        self.silence = silence
        self._warn = warn
        self._most = strangers
        self._strangers: dict[Peer, None] = {}  # the oldest first, as is each of
        self._by_address: defaultdict[str, dict[Peer, None]] = defaultdict(dict)
        self._told: set[str] = set()

    def meet(self, peer: Peer) -> None:
        """Somebody has connected."""
        self._strangers[peer] = self._by_address[peer.address][peer] = None
        if len(self._strangers) > self._most:
            busiest = max(self._by_address.values(), key=len)
            next(iter(busiest)).cut()

    def part(self, peer: Peer) -> None:
        """One of them is no stranger any more, or is gone."""
        if peer in self._strangers:
            del self._strangers[peer], self._by_address[peer.address][peer]
            if not self._by_address[peer.address]:
                del self._by_address[peer.address]

    def sweep(self, now: float) -> None:
        """Drop those that take too long; to be called often. ``now`` is ``time.monotonic()``."""
        while (oldest := next(iter(self._strangers), None)) and now > oldest.since + PATIENCE:
            oldest.cut()

    def refuse(self, peer: Peer) -> None:
        """One of them has greeted, and is gone without a proof that it knows the secret."""
        if peer.address not in self._told and len(self._told) < TOLD:
            self._told.add(peer.address)
            self._warn(f"warning: {peer.address} does not know this run's secret; it was not let in")


class Peer(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, door: Door) -> None:
        self._door = door
        self._session: Session | None = None  # once it has greeted
        self._member = False  # once it has proved itself
        self._rest = bytearray()
        self.since = time.monotonic()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        interval, attempts = self._door.silence
        notice_silence(transport.get_extra_info("socket"), interval=interval, attempts=attempts)
        self._door.meet(self)

    def data_received(self, data: bytes) -> None:
        """Take whole lines out of what has arrived."""
        self._rest += data
        seen = len(self._rest) - len(data)
        while not self._transport.is_closing() and (end := self._rest.find(b"\n", seen)) >= 0:
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            seen = 0
            self._take(line)
        if len(self._rest) > (LONGEST if self._member else WORDS):
            self.cut()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """It is gone."""
        self._door.part(self)
        if self._member:
            self._door.host.lose(self)
        elif self._session:
            self._door.refuse(self)

    def tell(self, message: Message) -> None:
        """Tell a peer that has proved itself."""
        if self._session and self._member and not self._transport.is_closing():
            self._transport.write(self._session.seal(messages.dump(message)))

    def close(self) -> None:
        """End the connection once all has been sent."""
        self._transport.close()

    def cut(self) -> None:
        """End the connection, and forget at once what it has cost."""
        self._door.part(self)
        self._rest.clear()
        self._transport.abort()

    def _take(self, line: bytes) -> None:
        try:
            if self._session and self._member:
                self._door.host.hear(self, messages.load(NODES, self._session.open(line)))
            else:
                self._prove(line)
        except ForgedError:
            self.cut()
        except MalformedError as error:
            self.tell(Refused(reason=f"node 0 cannot read what this node says: {error}"))
            self.close()

    def _prove(self, line: bytes) -> None:
        if len(line) > WORDS:
            raise MalformedError("too long")
        if self._session is None:
            answer, self._session = self._door.key.answer(typed.load(Greeting, line))
            self._transport.write(handshake.line(answer))
        else:
            words: Proof = typed.load(Proof, line)
            self._session.verify(words.mac)
            self._door.part(self)
            self._member = True
