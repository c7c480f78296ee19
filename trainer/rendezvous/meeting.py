"""The hub's rendezvous as torch's elastic agent sees it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from trainer.env import NodeEnv
from trainer.outcome.termination import FINISHED, Ending, heard
from trainer.rendezvous.backend import JobEnded, Rendezvous
from trainer.rendezvous.knobs import Knobs
from trainer.rendezvous.roundstore import RoundStore
from trainer.system import port
from trainer.system.lines import ConnectionLost, Lines, Message, notice_silence


class RoundOver(RendezvousError):
    """The round that this node took part in is over."""


@dataclass(kw_only=True)
class Past:
    """What a new hub has to be told: the last round that this node took part in, and how many nodes that one had."""

    round: int = 0
    size: int = 0


class HubBackend:
    """See ``trainer.rendezvous.backend.Backend``; ``born`` is when the agent began, in unix seconds."""

    def __init__(self, node: NodeEnv, knobs: Knobs, *, born: float) -> None:
        self._node = node
        self._knobs = knobs
        self._born = born
        self._past = Past()

    def connect(self, *, deadline: float, waiting: Callable[[str], None] = lambda _: None) -> None:
        """See the protocol."""
        try:
            host = self._node.rendezvous_host, self._node.rendezvous_port
            connection = port.reach(*host, deadline=deadline, nodes=self._node.max_nodes, waiting=waiting)
        except TimeoutError as error:
            raise RendezvousTimeoutError(str(error)) from error
        knobs = self._knobs
        notice_silence(connection, interval=knobs.keep_alive_interval, attempts=knobs.keep_alive_max_attempt)
        self._lines = Lines(connection)

    def handler(self, local_addr: str) -> HubRendezvous:
        """See the protocol."""
        node = self._node
        hello = {"say": "hello", "run": node.run_id, "node": node.node_index, "born": self._born, "pod": node.pod}
        rendezvous = HubRendezvous(self._lines, self._knobs, past=self._past, run=self._node.run_id, address=local_addr)
        rendezvous.say(hello)
        return rendezvous


class HubRendezvous(Rendezvous):
    """One connection's handler.

    Args:
        lines: the connection.
        knobs: ``join_timeout`` bounds the wait for a round, ``read_timeout`` that for an answer.
        past: kept up to date.
        run: the id of the run.
        address: where the other nodes reach this one.
    """

    def __init__(self, lines: Lines, knobs: Knobs, *, past: Past, run: str, address: str) -> None:
        self._lines = lines
        self._knobs = knobs
        self._past = past
        self._run = run
        self._address = address
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
        seat = {"address": self._address, "port": free_port(self._address), "round": past.round, "size": past.size}
        self.say({"say": "join", **seat})
        message = self._await("round", timeout=self._knobs.join_timeout)
        self._over = self._done = self.lost = self.asked = False
        self._told = (False, False)
        self.reason, self.culprit, self.tempo = "", None, None
        past.round, past.size = message["number"], message["size"]
        return RendezvousInfo(
            RoundStore(self.say, self.ask),  # type: ignore[arg-type]  # what torch's agent uses of one
            message["rank"],
            message["size"],
            RendezvousStoreInfo(message["address"], message["port"]),
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
            self.say({"say": "pulse", "stalled": stalled, "frozen": frozen, "tempo": tempo})

    def account(self, ranks: Sequence[Mapping[str, Any]]) -> None:
        """See the base class."""
        self.asked = False
        self.say({"say": "account", "ranks": ranks})

    def end(self, *, lost: bool) -> None:
        """See the base class."""
        self.say({"say": "end", "lost": lost})

    def done(self, *, patience: float) -> bool:
        """See the base class: told once, and answered once all are."""
        if not self._done:
            self._done = True
            self.say({"say": "done"})
        self._stay_alive()
        with suppress(RendezvousTimeoutError):
            self._await("finished", timeout=patience)
            return True
        return False

    def fail(self, ending: Ending, *, patience: float) -> None:
        """See the base class."""
        self.say({"say": "fail", "ending": asdict(ending)})
        deadline = time.monotonic() + patience
        while (message := self._receive(max(deadline - time.monotonic(), 0))) and message["say"] != "told":
            pass  # whatever it is, this node has come to its own end

    def leave(self) -> None:
        """See the base class."""
        self._lines.close()

    def ask(self, question: Message, answer: str) -> Message:
        """Ask the hub something about the round.

        Raises:
            RoundOver: there is none any more.
        """
        self.say(question)
        return self._await(answer, timeout=self._knobs.read_timeout)

    def say(self, message: Message) -> None:
        """Tell the hub."""
        self._said = time.monotonic()
        try:
            self._lines.send(message)
        except ConnectionLost as error:
            self.lost = True
            raise RendezvousConnectionError(f"node 0 is gone: {error}") from error

    def _stay_alive(self) -> None:
        if time.monotonic() > self._said + self._knobs.silence:
            self.say({"say": "alive"})

    def _await(self, say: str, *, timeout: float) -> Message:
        deadline = time.monotonic() + timeout
        while message := self._receive(max(deadline - time.monotonic(), 0)):
            if message["say"] == say:
                return message
            self._note(message)
            if self._over and say != "round":
                raise RoundOver(self.reason or "a node was lost while the round began or ended")
        raise RendezvousTimeoutError(f"nothing heard of {say!r} in {timeout:.0f} s")

    def _receive(self, timeout: float) -> Message | None:
        try:
            return self._lines.receive(timeout)
        except ConnectionLost as error:
            self.lost = True
            raise RendezvousConnectionError(f"node 0 is gone: {error}") from error

    def _note(self, message: Message) -> None:
        match message:
            case {"say": "over", "lost": lost, "reason": reason, "culprit": culprit}:
                self._over = True
                self.lost, self.reason, self.culprit = lost, reason, culprit
            case {"say": "tempo"}:
                self.tempo = message
            case {"say": "explain"}:
                self.asked = True
            case {"say": "failed", "ending": ending}:
                self.lost = True
                raise JobEnded(heard(ending))
            case {"say": "finished"}:  # without this node, which waits for a round
                raise JobEnded(FINISHED)
            case {"say": "refused", "reason": reason}:
                raise RendezvousConnectionError(reason)

    def get_backend(self) -> str:
        """See the base class."""
        return "hub"

    @property
    def use_agent_store(self) -> bool:
        """See the base class: rank 0 hosts the ranks' store, which ends with the round."""
        return False

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


def free_port(address: str) -> int:
    """A port that is free on this node, for its first rank to listen on should that be the world's first."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
