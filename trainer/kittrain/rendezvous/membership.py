"""Which nodes are there, and when they form a round: the rules of the rendezvous, without clocks or sockets.

A round is formed once, by one process, from the nodes that are ready; it is over for all of its nodes at the moment
that one of them is lost, says that its ranks have failed, or is joined by a node that makes the job larger.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, kw_only=True)
class Node:
    """A node that is connected.

    Attributes:
        index: of the pod.
        born: unix seconds at which its agent began.
        pod: that it is.
        address: where its first rank can be reached, told when it is ready.
        port: free there.
        ready: whether it waits for the next round.
        active: whether it takes part in the current one.
        seated: whether it took part in the last one, and so will soon be ready for the next.
        done: whether its ranks have succeeded.
        draining: whether it was told to leave: others' ranks may have ended by agreement with its own.
    """

    index: int
    born: float
    pod: str = ""
    address: str = ""
    port: int = 0
    ready: bool = False
    active: bool = False
    seated: bool = False
    done: bool = False
    draining: bool = False

    @property
    def name(self) -> str:
        """The node, for a person."""
        return f"node {self.index}, pod {self.pod}" if self.pod else f"node {self.index}"


class Superseded(Exception):
    """A younger agent has this node's place."""


class Roster:
    """The nodes of one job. ``now`` is in seconds of any steady clock.

    Args:
        fewest: nodes of a round.
        most: nodes of a round.
        last_call: seconds that fewer than expected nodes wait for more.
    """

    def __init__(self, *, fewest: int, most: int, last_call: float) -> None:
        self.fewest = fewest
        self.most = most
        self._last_call = last_call
        self._nodes: dict[int, Node] = {}
        self._expected = most  # nodes that are worth a last call: those of the last round that may be there
        self._called: float | None = None  # when the last call began
        self._finished = False  # whether the ranks of a whole round have succeeded, after which there is no other
        self.round = 0
        self.group: list[Node] = []  # of the current round, in order of their ranks; empty between two rounds

    def rival(self, node: Node) -> Node | None:
        """The older agent that has the place of a node, if any.

        Raises:
            Superseded: the place is a younger agent's.
        """
        rival = self._nodes.get(node.index)
        if rival and rival.born > node.born:
            raise Superseded
        return rival

    def enter(self, node: Node) -> None:
        """A node has connected."""
        self._nodes[node.index] = node

    def join(self, node: Node, *, round: int, size: int) -> list[Node]:  # noqa: A002  its name everywhere
        """A node is ready for a round.

        Args:
            node: which one.
            round: the last one that it took part in, 0 for none.
            size: how many nodes that one had.

        Returns:
            The nodes whose round is thereby over.
        """
        if round > self.round:  # this process is new, so the node that it belongs to took no part in that round
            self.round, self._expected = round, size - 1
        over = self.end(node)
        node.ready, node.done = True, False
        node.seated = node.seated or round == self.round > 0
        return over

    def leave(self, node: Node) -> list[Node]:
        """A node is gone; gives the nodes whose round is thereby over."""
        del self._nodes[node.index]
        self._expected -= node.seated
        if any(other.done for other in self.group) and not node.draining:
            # The round ends anyway, and the others may still be at their last words.
            self.group = [other for other in self.group if other is not node]
            node.active = False
        return self.end(node)

    def end(self, node: Node) -> list[Node]:
        """A node's ranks are no more; gives the nodes whose round is thereby over."""
        if not node.active:
            return []
        over, self.group = self.group, []
        for other in over:
            other.active = False
        return over

    def succeed(self, node: Node) -> None:
        """A node's ranks have succeeded."""
        node.done = True

    def dismiss(self) -> list[Node]:
        """Once the ranks of all nodes of a round have succeeded: these nodes, and those that wait for another round."""
        self._finished = self._finished or (bool(self.group) and all(node.done for node in self.group))
        if not self._finished:
            return []
        dismissed = [*self.group, *self._ready()]
        for node in dismissed:
            node.ready = node.active = False
        self.group = []
        return dismissed

    def grow(self, now: float) -> list[Node]:
        """End the round if there are nodes to make it larger; gives the nodes whose round is thereby over."""
        room = self.most - len(self.group)
        if not self.group or not room or any(node.done for node in self.group):
            return []
        waiting = len(self._ready())
        if not waiting:
            return []
        return self.end(self.group[0]) if waiting >= room or self._last_call_is_over(now) else []

    def form(self, now: float) -> bool:
        """Form the next round if it may be formed now; whether it was formed."""
        if self.group:
            return False
        ready = self._ready()
        if len(ready) < self.fewest or (len(ready) < self.most and self._others_may_come(ready, now)):
            return False
        self.round += 1
        self.group = ready[: self.most]
        for node in self.group:
            node.active = True
        self._expected = len(self.group)
        self._called = None
        for node in self._nodes.values():
            node.seated = node.active
            node.ready = node.ready and not node.active
        return True

    def _others_may_come(self, ready: list[Node], now: float) -> bool:
        former = [node for node in self._nodes.values() if node.seated]
        if not all(node.ready for node in former):  # its ranks are being stopped, or take a snapshot before
            return True
        here = len(former) if self.round else len(ready)
        return here < self._expected and not self._last_call_is_over(now)

    def _ready(self) -> list[Node]:
        return sorted((node for node in self._nodes.values() if node.ready), key=lambda node: node.index)

    def _last_call_is_over(self, now: float) -> bool:
        """The last call begins when this is asked first."""
        self._called = now if self._called is None else self._called
        return now >= self._called + self._last_call
