"""Decides which nodes form a round and when it ends: the rules of the rendezvous, without clocks or sockets.

One process forms each round, from the nodes that are ready. The round ends for all of its nodes as soon as one of them
is lost, one reports that its ranks have stopped, or more nodes can make the job larger. Nodes that are ready next to a
full round are spares: the next round takes them in place of those that are lost, at once.

Why: decision 10; of spares decision 55.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, kw_only=True)
class Node:
    """A connected node.

    Attributes:
        index: of the node.
        started_at: unix seconds at which its agent started.
        pod: name of its pod.
        address: where its first rank can be reached; known once it is ready.
        port: free there.
        ready: whether it waits for the next round.
        active: whether it is in the current round.
        place: its group rank in the latest round that it was in, as far as this hub formed it.
        in_last_round: whether it was in the latest round, so that it will soon be ready for the next.
        done: whether its ranks have succeeded.
        draining: whether it was asked to stop: ranks of other nodes may have stopped in agreement with its own.
    """

    index: int
    started_at: float
    pod: str = ""
    address: str = ""
    port: int = 0
    ready: bool = False
    active: bool = False
    place: int | None = None
    in_last_round: bool = False
    done: bool = False
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
    """

    def __init__(self, *, min_nodes: int, max_nodes: int, last_call_timeout: float, spares: int = 0) -> None:
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.all_nodes = max_nodes + spares
        self._last_call_timeout = last_call_timeout
        self._nodes: dict[int, Node] = {}
        self._expected = max_nodes  # nodes that a last call waits for: those of the last round that may come back
        self._size = 0  # nodes of the last round
        self._last_call_began: float | None = None
        self._finished = False  # whether the ranks of a whole round have succeeded; no round follows
        self._replaced: set[tuple[int, float]] = set()  # agents whose places others have taken, while connected
        self.round = 0
        self.group: list[Node] = []  # nodes of the current round by rank; empty between two rounds

    @property
    def standing_by(self) -> list[Node]:
        """The spares that are ready, while a round of full size is trained by others."""
        return self._ready() if len(self.group) == self.max_nodes else []

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

    def join(self, node: Node, *, round: int, size: int) -> list[Node]:  # noqa: A002  its name everywhere
        """A node is ready for a round.

        Args:
            node: which one.
            round: number of the last round that it was in; 0 for none.
            size: how many nodes that round had.

        Returns:
            The nodes whose round this ends.
        """
        if round > self.round:  # the hub is new, so its own node was not in that round
            self.round, self._expected = round, size - 1
        ended = self.end_round(node)
        node.ready, node.done = True, False
        node.in_last_round = node.in_last_round or round == self.round > 0
        return ended

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
        missing = self.max_nodes - len(self.group)
        if not self.group or not missing or any(node.done for node in self.group):
            return []
        waiting = len(self._ready())
        if not waiting:
            return []
        return self.end_round(self.group[0]) if waiting >= missing or self._last_call_is_over(now) else []

    def form_round(self, now: float) -> bool:
        """Form the next round if that is possible now; returns whether it was formed."""
        if self.group:
            return False
        ready = self._ready()
        if len(ready) < self.min_nodes or self._is_stopping() or self._better_may_come(ready, now):
            return False
        self.round += 1
        self.group = self._placed(ready)
        for place, node in enumerate(self.group):
            node.active, node.place = True, place
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
            waits = here < self._expected
        else:
            waits = not self.round and ready[self.max_nodes - 1].index >= self.max_nodes
        return waits and not self._last_call_is_over(now)

    def _placed(self, ready: list[Node]) -> list[Node]:
        """The next round's nodes by group rank: by index, but in a round of the same size survivors stay in place.

        Nodes of the last round come first: they have its state in their memory, and a spare stays one.
        """
        chosen = sorted(ready, key=lambda node: (not node.in_last_round, node.index))[: self.max_nodes]
        kept = {node.place: node for node in chosen if node.place is not None and node.in_last_round}
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
