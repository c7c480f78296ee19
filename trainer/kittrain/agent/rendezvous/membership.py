"""Decides which nodes form a round and when it ends: the rules of the rendezvous, without clocks or sockets.

One process forms each round, from the nodes that are ready. The round ends for all of its nodes as soon as one of them
is lost, one reports that its ranks have stopped, or more nodes can make the job larger. Nodes that are ready next to a
full round are spares: the next round takes them in place of those that are lost, at once. Who may decide that, if a
hub or nodes are lost, says ``succession``.

Why: decision 10; of spares decision 55.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kittrain.agent.rendezvous import succession
from kittrain.agent.rendezvous.growth import Growth
from kittrain.agent.rendezvous.succession import Configuration, Known, Verdict


@dataclass(eq=False, kw_only=True)
class Node:
    """A connected node.

    Attributes:
        index: of the node.
        started_at: unix seconds at which its agent started.
        pod: name of its pod.
        address: where its first rank can be reached; known once it is ready.
        port: free there.
        hub_port: where its own hub listens; 0: unknown.
        known: what it knows of the last round; empty: it was told of none. None: it has not joined yet.
        ready: whether it waits for the next round.
        active: whether it is in the current round.
        place: its group rank in the latest round that it was in.
        last: number of that round.
        in_last_round: whether it was in the latest round, so that it will soon be ready for the next.
        done: whether its ranks have succeeded.
        released: whether it was told to look for another hub.
        draining: whether it was asked to stop: ranks of other nodes may have stopped in agreement with its own.
    """

    index: int
    started_at: float
    pod: str = ""
    address: str = ""
    port: int = 0
    hub_port: int = 0
    known: Known | None = None
    ready: bool = False
    active: bool = False
    place: int | None = None
    last: int = 0
    in_last_round: bool = False
    done: bool = False
    released: bool = False
    draining: bool = False

    @property
    def name(self) -> str:
        """The node's name in messages."""
        return f"node {self.index}, pod {self.pod}" if self.pod else f"node {self.index}"


class Superseded(Exception):
    """A newer agent is connected with this node's index."""


class Membership:
    """The nodes of one job. ``now`` is in seconds of any monotonic clock.

    Args:
        min_nodes: of a round.
        max_nodes: of a round.
        spares: nodes beyond those of a round.
        last_call_timeout: seconds that fewer than the expected nodes wait for more.
        first: whether the first round may be formed here; else only those that follow one.
        growth: when a round may end to become larger.
    """

    def __init__(
        self,
        *,
        min_nodes: int,
        max_nodes: int,
        last_call_timeout: float,
        spares: int = 0,
        first: bool = True,
        growth: Growth | None = None,
    ) -> None:
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.all_nodes = max_nodes + spares
        self._last_call_timeout = last_call_timeout
        self._growth = growth or Growth()
        self._held = False  # whether nodes that are ready have to wait until the round may grow
        self._nodes: dict[int, Node] = {}
        self._expected = max_nodes  # nodes that a last call waits for: those of the last round that may come back
        self._size = 0  # nodes of the last round
        self._last_call_began: float | None = None
        self._finished = False  # whether the ranks of a whole round have succeeded; no round follows
        self._first = first
        self._known: Known = ()
        self._ended: dict[int, int] = {}  # nodes that have no vote, and the last round's number at that time
        self._claimed: set[int] = set()
        self._coming: set[int] = set()  # nodes that a hub which ended has sent here
        self._retired = False
        self._heard: set[Node] = set()  # nodes of the round that are known to have been told of it
        self._replaced: set[tuple[int, float]] = set()  # agents whose places others have taken, while connected
        self.round = 0
        self.group: list[Node] = []  # nodes of the current round by rank; empty between two rounds

    @property
    def standing_by(self) -> list[Node]:
        """The nodes that are ready while others train, in a round that is full or may not grow now."""
        return self._ready() if len(self.group) == self.max_nodes or (self.group and self._held) else []

    def predecessor(self, node: Node, *, first: bool) -> Node | None:
        """The older agent that is connected with a node's index, if any.

        Args:
            node: that connects.
            first: its agent has not been connected before, so it is the newer one, whatever its machine's clock says.

        Raises:
            Superseded: the connected agent is the newer one.
        """
        connected = self._nodes.get(node.index)
        older = connected and not first and connected.started_at > node.started_at
        if older or (node.index, node.started_at) in self._replaced:
            raise Superseded
        if connected and connected.started_at != node.started_at:
            self._replaced.add((connected.index, connected.started_at))
        return connected

    def add(self, node: Node) -> None:
        """A node has connected."""
        self._nodes[node.index] = node

    def join(
        self,
        node: Node,
        *,
        known: Sequence[Configuration] = (),
        place: int | None = None,
        gone: Iterable[int] = (),
        coming: Iterable[int] = (),
    ) -> list[Node]:
        """A node is ready for a round.

        Args:
            node: which one.
            known: what it knows of the last round; empty if it was told of none.
            place: its group rank there; None if it was not in it.
            gone: nodes that it has found to have ended.
            coming: nodes that a hub which ended has sent here, too.

        Returns:
            The nodes whose round this ends.
        """
        node.known = tuple(known)
        if known and known[0].number > self.round:  # formed by another hub, whose node is not expected
            self.round, self._size = known[0].number, len(known[0].nodes)
            self._expected = self._size - 1
            for other in self._nodes.values():
                other.in_last_round, other.place = False, None
        if known and known[0].number == self.round:
            self._known = succession.newest(self._known, known)
            node.in_last_round = node.in_last_round or place is not None
            node.place = place if node.place is None else node.place
        node.last = max(node.last, known[0].number if known else 0)
        self.depart(*gone, at=node.last)
        self._coming.update(coming)
        ended = self.end_round(node)
        node.ready, node.done = True, False
        return ended

    def depart(self, *indices: int, at: int) -> None:
        """Nodes are known to have ended, so they have no vote; ``at`` is the number of the last round before."""
        for index in indices:
            self._ended[index] = max(at, self._ended.get(index, 0))
        if self._known:
            living = [index for index in self._known[0].nodes if self._ended.get(index, -1) < self.round]
            self._expected = min(self._expected, len(living))

    def heard(self, node: Node) -> None:
        """A node of the round has shown that it was told of it; once all have, the rounds before it decide nothing."""
        self._heard.add(node)
        if not self.settled and self._heard.issuperset(self.group):
            self._known = self._known[:1]

    @property
    def settled(self) -> bool:
        """Whether all nodes of the last round are known to have been told of it."""
        return len(self._known) == 1 and self._heard.issuperset(self.group)

    @property
    def known(self) -> Known:
        """What is known of the last round."""
        return self._known

    @property
    def ready(self) -> list[Node]:
        """The nodes that wait for a round."""
        return [node for node in self._nodes.values() if node.ready]

    @property
    def verdict(self) -> Verdict:
        """Whether the nodes that are ready may decide what follows."""
        ready = self.ready
        if not self._known:
            granted = self._first and not any(node.known for node in ready)
            return Verdict(granted=granted, reason="" if granted else "no node here was in a round")
        if len(ready) == self.all_nodes:  # nobody else is left who could decide
            return Verdict(granted=True)
        here = {node.index for node in ready if node.known}
        return succession.verdict(self._known, here=here, ended=self._ended, claimed=self._claimed)

    @property
    def leads(self) -> bool:
        """Whether those that are connected, ready or not, decide what follows the last round."""
        here = {node.index for node in self._nodes.values() if node.last}
        one = succession.verdict(self._known, here=here, ended=self._ended, claimed=self._claimed)
        return bool(self._known) and one.granted

    def retire(self) -> None:
        """This hub ends: no round is formed here any more, so another one may be told who has no vote."""
        self._retired = True

    def give_up(self) -> list[Node]:
        """This hub ends: those that train have to go on elsewhere, unless they are about to end; returns them."""
        return [] if not self.group or any(node.done for node in self.group) else self.end_round(self.group[0])

    @property
    def finished(self) -> bool:
        """Whether the ranks of a whole round have succeeded."""
        return self._finished

    @property
    def ended(self) -> list[int]:
        """The nodes of the last round, or of those before it that may still decide, that have no vote there."""
        return sorted(index for index, last in self._ended.items() if self.round and last >= self.round)

    @property
    def heir(self) -> Node | None:
        """The node whose hub takes over once this one ends; None while a node of the last round stops its ranks.

        The nodes of that round come first, as they decide what follows, then those that stand by.
        """
        if self.group or self._is_stopping():
            return None
        left = [node for node in self._nodes.values() if node.ready and node.hub_port and not node.draining]
        return min(left, key=lambda node: (not node.in_last_round, node.place or 0, node.index), default=None)

    def follow(self) -> None:
        """There was a round elsewhere: the first one is not formed here."""
        self._first = False

    def claim(self, *numbers: int) -> None:
        """This hub alone may continue these rounds with half of their nodes."""
        self._claimed.update(numbers)

    def remove(self, node: Node) -> list[Node]:
        """A node is lost; returns the nodes whose round this ends."""
        del self._nodes[node.index]
        self._expected -= node.in_last_round
        if any(other.done for other in self.group) and not node.draining:
            # The round is about to end by itself, and ranks of other nodes may still be finishing.
            self.group = [other for other in self.group if other is not node]
            node.active = False
        return self.end_round(node)

    def end_round(self, node: Node) -> list[Node]:
        """A node's ranks have stopped; returns the nodes whose round this ends."""
        if not node.active:
            return []
        ended, self.group = self.group, []
        for other in ended:
            other.active = False
        return ended

    def mark_done(self, node: Node) -> None:
        """A node's ranks have succeeded."""
        node.done = True

    def finish(self) -> list[Node]:
        """Once the ranks of all nodes of a round have succeeded: those nodes, and the ones waiting for a round."""
        self._finished = self._finished or (bool(self.group) and all(node.done for node in self.group))
        if not self._finished:
            return []
        released = [*self.group, *self._ready()]
        for node in released:
            node.ready = node.active = False
        self.group = []
        return released

    def scale_up(self, now: float) -> list[Node]:
        """End the round if ready nodes can make it larger; returns the nodes whose round this ends."""
        self._held = self._growth.held(now)
        missing = self.max_nodes - len(self.group)
        if not self.group or not missing or any(node.done for node in self.group):
            return []
        waiting = len(self._ready())
        if not waiting or self._held or not (waiting >= missing or self._last_call_is_over(now)):
            return []
        self._growth.grown(now)
        return self.end_round(self.group[0])

    def form_round(self, now: float) -> bool:
        """Form the next round if that is possible now; returns whether it was formed."""
        if self.group or self._retired:
            return False
        ready = self._ready()
        if len(ready) < self.min_nodes or self._is_stopping() or self._better_may_come(ready, now):
            return False
        if not self.verdict.granted:
            return False
        self.group = self._placed(ready)
        self.round += 1
        self._known = (succession.configuration(self.round, [node.index for node in self.group]), *self._known)
        self._heard.clear()
        self._coming.clear()
        for place, node in enumerate(self.group):
            node.active, node.place, node.last = True, place, self.round
        self._size = self._expected = len(self.group)
        self._last_call_began = None
        for node in self._nodes.values():
            node.in_last_round = node.active
            node.ready = node.ready and not node.active
        return True

    def _is_stopping(self) -> bool:
        """Whether a node of the last round still stops its ranks, which may take a snapshot first."""
        return not all(node.ready for node in self._nodes.values() if node.in_last_round)

    def _better_may_come(self, ready: list[Node], now: float) -> bool:
        """Whether a last call may bring more nodes or, for the first round, those that are no spares."""
        if len(ready) < self.max_nodes:
            here = sum(node.in_last_round for node in self._nodes.values()) if self.round else len(ready)
            waits = here < self._expected or not self._coming.issubset(node.index for node in ready)
        else:
            waits = not self.round and ready[self.max_nodes - 1].index >= self.max_nodes
        return waits and not self._last_call_is_over(now)

    def _placed(self, ready: list[Node]) -> list[Node]:
        """The next round's nodes by group rank: by index, but in a round of the same size survivors stay in place.

        Nodes of the last round come first: they have its state in their memory, and a spare stays one.
        """
        chosen = sorted(ready, key=lambda node: (not node.in_last_round, node.index))[: self.max_nodes]
        kept: dict[int, Node] = {}
        for node in chosen:
            if node.in_last_round and node.place is not None and node.place < len(chosen):
                kept.setdefault(node.place, node)
        if len(chosen) != self._size or not kept:
            return sorted(chosen, key=lambda node: node.index)
        others = iter(sorted((node for node in chosen if node not in kept.values()), key=lambda node: node.index))
        return [kept.get(place) or next(others) for place in range(len(chosen))]

    def _ready(self) -> list[Node]:
        return sorted((node for node in self._nodes.values() if node.ready), key=lambda node: node.index)

    def _last_call_is_over(self, now: float) -> bool:
        """Whether the last call has timed out; the first call of this method begins it."""
        self._last_call_began = now if self._last_call_began is None else self._last_call_began
        return now >= self._last_call_began + self._last_call_timeout
