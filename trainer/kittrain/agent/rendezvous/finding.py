"""Finds the hub that serves: that of the last round, one that takes its place, or the one at the well-known address.

A node that has lost its hub tries those that would take its place, in the order of ranks, so that all that can reach
the first one meet there. Hubs that know that another one serves say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kitjob.decoders import MalformedError
from kittrain.agent.rendezvous.connection import Opened, open_connection
from kittrain.agent.rendezvous.handshake import AuthenticationError, Key
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.rendezvous.succession import Known
from kittrain.system import port
from kittrain.system.lines import ConnectionLost

REACHED_IN: Final = (0.3, 3.0)  # seconds for a connection to a successor, and for its answer
WELL_KNOWN_IN: Final = (2.0, 10.0)  # the same at the well-known address: thousands of nodes may connect at once
MEET_SECONDS: Final = 1.5  # in which a successor's agent notices the loss, too
MEET_INTERVAL: Final = 0.03
FAILURES: Final = (OSError, ConnectionLost, AuthenticationError, MalformedError)


@dataclass(kw_only=True)
class LastRound:
    """What a node knows of the last round, and of its hub.

    Attributes:
        known: who decides what follows it; empty: it was told of no round.
        place: its group rank there; None: it was not in it.
        successors: index and ``address:port`` of the nodes whose hubs take over, in this order.
        gone: nodes that have ended since.
        hub: name of the hub that it is, or was, connected to.
        address: of that hub, as ``address:port``.
        closed: whether that connection was closed, by a hub or a process that ended, and did not only fall silent.
        astray: whether the hub that was found could not go on, so that all others are asked first.
    """

    known: Known = ()
    place: int | None = None
    successors: list[tuple[int, str]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    hub: str = "0"
    address: str = ""
    closed: bool = True
    astray: bool = False

    @property
    def hub_node(self) -> int:
        """The index of the hub's node."""
        return int(self.hub.partition("-")[0])


class Finder:
    """Connects to the hub that serves.

    Args:
        well_known: host and port of node 0's hub.
        key: of the run.
        settings: timeouts.
        last: updated with what is found out.
        nodes: how many may try to connect at once.
    """

    def __init__(
        self, well_known: tuple[str, int], key: Key, *, settings: RendezvousSettings, last: LastRound, nodes: int
    ) -> None:
        self._well_known = well_known
        self._key = key
        self._settings = settings
        self._last = last
        self._nodes = nodes
        self._error: Exception = TimeoutError("not tried")  # at the well-known address

    def find(self, *, deadline: float, waiting: Callable[[str], None]) -> Opened:
        """Connect, and try again until the deadline, in ``time.monotonic()``.

        Args:
            deadline: when to give up.
            waiting: called with the reason before each further attempt.

        Raises:
            TimeoutError: no hub could be reached in time.
        """
        began = time.monotonic()
        while True:
            found = self._round_trip()
            if found:
                return found
            host, error = ":".join(map(str, self._well_known)), self._error
            unreachable = isinstance(error, OSError)
            if time.monotonic() > deadline:
                what = f"node 0 cannot be reached at {host}" if unreachable else f"no rendezvous of this run at {host}"
                raise TimeoutError(f"{what}: {error}") from error
            who = "node 0" if unreachable else "the rendezvous of this run"
            waiting(f"waiting for {who} at {host} ({error})")
            port.sleep_backoff(began, nodes=self._nodes)

    def go(self, address: str) -> Opened | None:
        """Connect to the hub that takes over from the one that this node was connected to; None if that fails."""
        found = self._ask(address)
        if found and found.hub.elsewhere:  # its own agent has not been told yet
            found = self._follow(found, address)
        return self._settle(found) if found else None

    def _round_trip(self) -> Opened | None:
        """Ask each hub that is known, once; after going astray, those that serve come first.

        If none does, those that were in no round are at the well-known address: what decides may have to wait for them.
        """
        idle: list[str] = []
        for address in self._addresses():
            found = self._ask(address)
            if found and found.hub.elsewhere:
                found = self._follow(found, address)
            if not found:
                continue
            if self._last.astray and not found.hub.serves:
                idle.insert(0 if not address else len(idle), found.address)
                found.connection.close()
                continue
            return self._settle(found)
        return next((self._settle(found) for found in map(self._ask, idle) if found), None)

    def _settle(self, found: Opened) -> Opened:
        self._last.hub, self._last.address = found.hub.hub, found.address
        return found

    def _addresses(self) -> Iterator[str]:
        """The lost hub, if it was not cut off; those that take its place; the well-known one."""
        last = self._last
        if last.successors and last.closed and not last.astray:
            yield last.address
        for _, address in last.successors:
            if address != last.address or last.astray:  # in one order, so that all meet once they can
                yield address
        yield ""

    def _ask(self, address: str) -> Opened | None:
        """Connect to a hub; empty: to the well-known one. Another hub at the lost one's address is not it."""
        last = self._last
        host, _, number = address.rpartition(":")
        where = (host, int(number)) if address else self._well_known
        timeouts = REACHED_IN if address else WELL_KNOWN_IN
        try:
            found = open_connection(where, self._key, settings=self._settings, timeouts=timeouts)
        except FAILURES as error:
            if not address:
                self._error = error
            if isinstance(error, ConnectionRefusedError) and address == last.address:
                self._has_ended()
            return None
        if address and address == last.address and found.hub.hub != last.hub:
            self._has_ended()
            found.connection.close()
            return None
        return found

    def _follow(self, found: Opened, address: str) -> Opened | None:
        """Go to the hub that another one names; if that is the lost one, the other's agent is about to notice."""
        until = time.monotonic() + MEET_SECONDS
        while found.hub.elsewhere:
            found.connection.close()
            there = self._ask(found.hub.elsewhere)
            if there and not there.hub.elsewhere:
                return there
            if there:
                there.connection.close()
            time.sleep(MEET_INTERVAL)
            again = self._ask(address)
            if again is None or time.monotonic() > until:
                if again:
                    again.connection.close()
                return None
            found = again
        return found

    def _has_ended(self) -> None:
        """The lost hub, and its node's agent: its connection was closed, and now its machine refuses others."""
        last = self._last
        if last.closed and last.successors:
            last.gone.add(last.hub_node)
