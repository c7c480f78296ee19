"""The hub's rendezvous as torch's elastic agent sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from kittrain.outcome.termination import FINISHED, Ending, heard
from kittrain.rendezvous import messages, rank_store
from kittrain.rendezvous.backend import JobEnded, Rendezvous, RoundOver
from kittrain.rendezvous.connection import Connection
from kittrain.rendezvous.diagnosis import Account
from kittrain.rendezvous.messages import Message
from kittrain.rendezvous.rank_store import RankStore
from kittrain.rendezvous.round_store import RoundStore
from kittrain.rendezvous.settings import Knobs
from kittrain.system.lines import ConnectionLost

M = TypeVar("M", bound=Message)


@dataclass(kw_only=True)
class Past:
    """What a new hub has to be told: the last round that this node took part in, and how many nodes that one had."""

    round: int = 0
    size: int = 0


class HubRendezvous(Rendezvous):
    """One connection's handler.

    Args:
        connection: to the hub.
        knobs: ``join_timeout`` bounds the wait for a round, ``read_timeout`` that for an answer.
        past: kept up to date.
        run: the id of the run.
        address: where the other nodes reach this one.
        store: of the ranks, should the first one be here.
    """

    def __init__(
        self, connection: Connection, knobs: Knobs, *, past: Past, run: str, address: str, store: RankStore
    ) -> None:
        self._connection = connection
        self._knobs = knobs
        self._past = past
        self._run = run
        self._address = address
        self._store = store
        self._over = self._done = False
        self._told = (False, False)  # of the ranks: stalled, frozen
        self._pulsed = self._said = 0.0
        self.lost = False

    def next_rendezvous(self) -> RendezvousInfo:
        """See the base class: wait for the next round.

        Raises:
            RendezvousTimeoutError: it was not formed within ``join_timeout``.
            RendezvousConnectionError: node 0 is gone.
        """
        past = self._past
        port = self._store.reserve(self._address)
        self.say(messages.Join(address=self._address, port=port, round=past.round, size=past.size))
        message = self._await(messages.Round, timeout=self._knobs.join_timeout)
        self._store.begin(first=message.rank == 0)
        self._over = self._done = self.lost = self.asked = False
        self._told = (False, False)
        self.reason, self.culprit, self.tempo = "", None, None
        past.round, past.size = message.number, message.size
        return RendezvousInfo(
            RoundStore(self.say, self.ask),  # type: ignore[arg-type]  # what torch's agent uses of one
            message.rank,
            message.size,
            RendezvousStoreInfo(message.address, message.port),
        )

    def num_nodes_waiting(self) -> int:
        """See the base class: not 0 if the round is over, which is all that torch's agent wants to know.

        A hang is no change of membership but a failure, which :attr:`culprit` tells.
        """
        while message := self._receive(0):
            self._note(message)
        self._stay_alive()
        return int(self._over and self.culprit is None)

    def pulse(self, *, stalled: bool, frozen: bool, tempo: Mapping[int, tuple[int, float]]) -> None:
        """See the base class: what is new at once, and nothing new as a sign of life from time to time."""
        now = time.monotonic()
        if (stalled, frozen) != self._told or now > self._pulsed + self._knobs.silence:
            self._told, self._pulsed = (stalled, frozen), now
            self.say(messages.Pulse(stalled=stalled, frozen=frozen, tempo=tempo))

    def account(self, ranks: Sequence[Account]) -> None:
        """See the base class."""
        self.asked = False
        self.say(messages.Accounts(ranks=ranks))

    def drain(self) -> None:
        """See the base class."""
        self.say(messages.Drain())

    def end(self, *, lost: bool) -> None:
        """See the base class."""
        self.say(messages.End(lost=lost))

    def done(self, *, patience: float) -> bool:
        """See the base class: told once, and answered once all are."""
        if not self._done:
            self._done = True
            self.say(messages.Done())
        self._stay_alive()
        with suppress(RendezvousTimeoutError):
            self._await(messages.Finished, timeout=patience)
            return True
        return False

    def fail(self, ending: Ending, *, patience: float) -> None:
        """See the base class."""
        self.say(messages.Fail(ending=ending))
        deadline = time.monotonic() + patience
        while (message := self._receive(max(deadline - time.monotonic(), 0))) and not isinstance(
            message, messages.Told
        ):
            pass  # whatever it is, this node has come to its own end

    def leave(self) -> None:
        """See the base class."""
        self._connection.close()

    def ask(self, question: messages.Get) -> messages.Values:
        """Ask the hub what the other nodes of the round have told.

        Raises:
            RoundOver: there is none any more.
        """
        self.say(question)
        return self._await(messages.Values, timeout=self._knobs.read_timeout)

    def say(self, message: Message) -> None:
        """Tell the hub."""
        self._said = time.monotonic()
        try:
            self._connection.send(message)
        except ConnectionLost as error:
            self.lost = True
            raise RendezvousConnectionError(f"node 0 is gone: {error}") from error

    def _stay_alive(self) -> None:
        if time.monotonic() > self._said + self._knobs.silence:
            self.say(messages.Alive())

    def _await(self, kind: type[M], *, timeout: float) -> M:
        deadline = time.monotonic() + timeout
        while message := self._receive(max(deadline - time.monotonic(), 0)):
            if isinstance(message, kind):
                return message
            self._note(message)
            if self._over and kind is not messages.Round:
                raise RoundOver(self.reason or "a node was lost while the round began or ended")
        raise RendezvousTimeoutError(f"nothing heard of {kind.__name__.lower()!r} in {timeout:.0f} s")

    def _receive(self, timeout: float) -> Message | None:
        try:
            return self._connection.receive(timeout)
        except ConnectionLost as error:
            self.lost = True
            raise RendezvousConnectionError(f"node 0 is gone: {error}") from error

    def _note(self, message: Message) -> None:
        match message:
            case messages.Over():
                self._over = True
                self.lost, self.reason, self.culprit = message.lost, message.reason, message.culprit
            case messages.Paces():
                pairs = {"busy": message.busy, "slow": message.slow}
                self.tempo = {name: {str(rank): one for rank, one in told.items()} for name, told in pairs.items()}
            case messages.Explain():
                self.asked = True
            case messages.Failed(ending=ending):
                self.lost = True
                raise JobEnded(heard(ending))
            case messages.Finished():  # without this node, which waits for a round
                raise JobEnded(FINISHED)
            case messages.Refused(reason=reason):
                raise RendezvousConnectionError(reason)

    def get_backend(self) -> str:
        """See the base class."""
        return "hub"

    @property
    def use_agent_store(self) -> bool:
        """See the base class: the first node's agent hosts the ranks' store, until it is in another round."""
        return rank_store.usable()

    def get_run_id(self) -> str:
        """See the base class."""
        return self._run

    def is_closed(self) -> bool:
        """See the base class: never, as long as there is somebody who asks."""
        return False

    def set_closed(self) -> None:
        """See the base class: one node does not close the run for all."""

    def shutdown(self) -> bool:
        """See the base class."""
        self.leave()
        return True
