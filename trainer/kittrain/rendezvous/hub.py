"""Where the nodes of a job meet: it hears them, and tells them what the roster and the vigil decide.

It holds nothing that the nodes could not tell it anew. Each node keeps one connection, and a connection that ends is a
node that is gone. Who comes in, and what may be said, ``door`` and ``messages`` decide: here are members of the run.
What belongs to a round is heard from its nodes only: whoever still speaks of a former round has been sent ``Over``.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from kittrain.outcome.termination import Ending
from kittrain.rendezvous import messages as say
from kittrain.rendezvous.handshake import Key
from kittrain.rendezvous.hang_detector import Vigil
from kittrain.rendezvous.membership import Node, Roster, Superseded
from kittrain.rendezvous.messages import Message
from kittrain.rendezvous.peers import Door, Peer
from kittrain.rendezvous.round_values import Board
from kittrain.rendezvous.stragglers import Tempo
from kittrain.system.port import BACKLOG

SILENT_PULSES: Final = 6  # that a node whose ranks run may miss
TICK: Final = 0.1  # seconds between two looks at the last call's clock


class Hub:
    """Listens to the nodes and tells them what the roster decides.

    Args:
        key: of the run; only nodes that know it are heard.
        roster: the rules of rounds.
        vigil: the rules of hangs.
        interval: seconds between two signs of life of a silent connection.
        attempts: how many may be missing.
        warn: told of those that do not know the key.
    """

    def __init__(
        self, key: Key, roster: Roster, vigil: Vigil, *, interval: int, attempts: int, warn: Callable[[str], None]
    ) -> None:
        self._door = Door(key, self, silence=(interval, attempts), warn=warn)
        self._roster = roster
        self._vigil = vigil
        self._tempo = Tempo()
        self._tempo_told = 0.0
        self._silence = interval * attempts
        self._peers: dict[Node, Peer] = {}
        self._nodes: dict[Peer, Node] = {}
        self._board = Board(self._tell)
        self._news = asyncio.Event()
        self._failed: say.Failed | None = None  # how the job ends, once a node has failed for good
        self._failing: set[Node] = set()
        self._heard: set[int] = set()  # the indices of the nodes that know

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the process ends."""
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: Peer(self._door), sock=listener, backlog=BACKLOG):
            while True:
                with suppress(TimeoutError):  # the last call has a clock
                    async with asyncio.timeout(TICK):
                        await self._news.wait()
                self._news.clear()
                now = time.monotonic()
                self._door.sweep(now)
                self._decide(now)
                self._look(now)

    def hear(self, peer: Peer, message: Message) -> None:
        """A member of the run says something: who it is, and then whatever it may."""
        node = self._nodes.get(peer)
        if isinstance(message, say.Hello):
            self._greet(peer, message)
        elif node is None:
            self._refuse(peer, "its first message has to say which node it is")
        else:
            self._vigil.hear(node, time.monotonic())
            self._hear(node, message)

    def lose(self, peer: Peer) -> None:
        """A member of the run is gone."""
        if node := self._nodes.get(peer):
            self._lose(node)

    def _greet(self, peer: Peer, hello: say.Hello) -> None:
        if peer in self._nodes:
            self._refuse(peer, "it has said already which node it is")
            return
        if hello.node >= self._roster.most:
            self._refuse(peer, f"node {hello.node} is none of this job's, whose last one is {self._roster.most - 1}")
            return
        node = Node(index=hello.node, born=hello.born, pod=hello.pod)
        try:
            rival = self._roster.rival(node)
        except Superseded:
            self._refuse(peer, f"a younger agent has the place of node {node.index}")
            return
        if rival:  # it was killed, and its connection has not noticed yet
            self._lose(rival)
        self._roster.enter(node)
        self._peers[node], self._nodes[peer] = peer, node
        self._vigil.hear(node, time.monotonic())
        self._tell_failure(node)

    def _refuse(self, peer: Peer, reason: str) -> None:
        peer.tell(say.Refused(reason=reason))
        peer.close()

    def _hear(self, node: Node, message: Message) -> None:
        match message:
            case say.Join():
                node.address, node.port = message.address, message.port
                over = self._roster.join(node, round=message.round, size=message.size)
                self._over(over, lost=True, reason=f"the ranks of {node.name} are no more")
                self._news.set()
            case say.End(lost=lost):
                reason = f"the ranks of {node.name} {'have failed' if lost else 'were asked to stop'}"
                self._over(self._roster.end(node), lost=lost, reason=reason)
            case say.Fail(ending=ending):
                self._fail(node, replace(ending, node=node.index))
            case _ if node.active:  # else of a round that is over, as the node will read
                self._hear_of_round(node, message)

    def _hear_of_round(self, node: Node, message: Message) -> None:
        match message:
            case say.Set(values=values):
                self._board.set(values)
            case say.Get(keys=keys):
                self._board.get(node, keys)
            case say.Pulse(stalled=stalled, frozen=frozen, tempo=tempo):
                self._vigil.stall(node, stalled=stalled, frozen=frozen)
                self._tempo.hear(tempo, time.monotonic())
            case say.Accounts(ranks=ranks):
                self._vigil.explain(node, [replace(account, node=node.name) for account in ranks])
            case say.Drain():
                node.draining = True
            case say.Done():
                self._roster.succeed(node)
                self._news.set()

    def _lose(self, node: Node, reason: str = "is lost") -> None:
        peer = self._peers.pop(node, None)
        if peer:  # else its successor has made sure already
            del self._nodes[peer]
            peer.close()
            self._vigil.forget(node)
            self._over(self._roster.leave(node), lost=True, reason=f"{node.name} {reason}")
            self._news.set()
            self._release()

    def _fail(self, node: Node, ending: Ending) -> None:
        self._failed = self._failed or say.Failed(ending=ending)
        self._failing.add(node)
        self._heard.add(node.index)
        for other in self._peers.keys() - self._failing:
            self._tell_failure(other)
        self._release()

    def _tell_failure(self, node: Node) -> None:
        if self._failed:
            self._tell(node, self._failed)
            self._heard.add(node.index)

    def _release(self) -> None:
        """Let nodes go that have failed once all others have heard, and have gone: node 0 takes this process along."""
        if len(self._heard) >= self._roster.fewest and self._peers.keys() <= self._failing:
            for node in self._failing:
                self._tell(node, say.Told())

    def _decide(self, now: float) -> None:
        """Let the roster act on what has happened, the passing of time included; once for all that has arrived."""
        self._over(self._roster.grow(now), lost=False, reason="there are nodes to make the job larger")
        for node in self._roster.dismiss():
            self._tell(node, say.Finished())
        if not self._roster.form(now):
            return
        self._vigil.begin()
        self._tempo.begin()
        first, size = self._roster.group[0], len(self._roster.group)
        seat = say.Round(number=self._roster.round, rank=0, size=size, address=first.address, port=first.port)
        for rank, node in enumerate(self._roster.group):
            self._tell(node, replace(seat, rank=rank))

    def _look(self, now: float) -> None:
        """Let the vigil act on what was heard, and on what was not."""
        group = self._roster.group
        for node in self._vigil.silent(self._peers, now):
            self._lose(node, reason="says nothing any more: its agent, or its machine, has been stopped")
        if group and now > self._tempo_told + self._silence:  # as often as nodes tell
            self._tempo_told = now
            self._tell(group[0], say.Paces(busy=self._tempo.busy(), slow=self._tempo.slow()))
        if self._vigil.suspects(group, now):
            for node in group:
                self._tell(node, say.Explain())
        if cause := self._vigil.verdict(group, now):
            self._over(self._roster.end(group[0]), lost=True, reason=cause.text, culprit=(cause.rank, cause.step))

    def _over(self, group: list[Node], *, lost: bool, reason: str, culprit: tuple[int, int] | None = None) -> None:
        """Tell nodes that their round is over, and forget what they told each other."""
        for node in group:
            self._tell(node, say.Over(lost=lost, reason=reason, culprit=culprit))
        if group:
            self._vigil.begin()
            self._board.clear()

    def _tell(self, node: Node, message: Message) -> None:
        if node in self._peers:
            self._peers[node].tell(message)
