"""Whether the ranks of a round still move, as far as all their agents tell: the rules, without clocks or sockets.

A node that says nothing at all is lost, whatever its kernel answers. If every node that is heard says that its ranks
are stalled, or one that a rank of it is frozen, each is asked where they stand, and the answers make the cause; unless
ranks work, who are given more time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kittrain.rendezvous.diagnosis import Account, Cause, cause, works
from kittrain.rendezvous.membership import Node

ANSWER_PATIENCE: Final = 5.0  # seconds for all accounts
FIRST_PAUSE: Final = 15.0  # seconds until ranks that work are asked again; twice as long each time
LONGEST_PAUSE: Final = 120.0


class Vigil:
    """Over one round after the other. ``now`` is in seconds of any steady clock.

    Args:
        silence: seconds after which a node whose ranks run is lost if it says nothing.
        stopping: seconds that it may say nothing while it stops its ranks.
    """

    def __init__(self, *, silence: float, stopping: float) -> None:
        self._silence = silence
        self._stopping = stopping
        self._heard: dict[Node, float] = {}
        self._stalled: set[Node] = set()
        self._frozen: set[Node] = set()
        self._asked: float | None = None
        self._again = float("-inf")  # when to ask at the earliest
        self._pause = FIRST_PAUSE
        self._accounts: dict[Node, Sequence[Account]] = {}

    def hear(self, node: Node, now: float) -> None:
        """A node has said something."""
        self._heard[node] = now

    def forget(self, node: Node) -> None:
        """A node is gone."""
        self._heard.pop(node, None)
        self._stalled.discard(node)
        self._frozen.discard(node)

    def begin(self) -> None:
        """A round was formed, or is over."""
        self._stalled.clear()
        self._frozen.clear()
        self._withdraw()

    def stall(self, node: Node, *, stalled: bool, frozen: bool) -> None:
        """A node's ranks are all stalled, or move; one of them is frozen, or none."""
        for nodes, told in ((self._stalled, stalled), (self._frozen, frozen)):
            (nodes.add if told else nodes.discard)(node)
        if not stalled and not self._frozen:
            self._withdraw()

    def explain(self, node: Node, accounts: Sequence[Account]) -> None:
        """A node says where its ranks stand."""
        self._accounts[node] = accounts

    def silent(self, nodes: Iterable[Node], now: float) -> list[Node]:
        """Those of the nodes that should have said something by now."""
        return [
            node for node in nodes if node.seated and not node.ready and now > self._heard[node] + self._limit(node)
        ]

    def _limit(self, node: Node) -> float:
        return self._silence + (0.0 if node.active else self._stopping)

    def suspects(self, group: Sequence[Node], now: float) -> bool:
        """Whether to ask all nodes now where their ranks stand."""
        running = [node for node in group if not node.done]
        if self._asked is not None or now < self._again:
            return False
        if not running or not (self._frozen or self._stalled.issuperset(running)):
            return False
        self._asked = now
        return True

    def verdict(self, group: Sequence[Node], now: float) -> Cause | None:
        """The cause of a hang, once it is known or nobody will tell more of it; None where it is none."""
        if self._asked is None:
            return None
        all_told = self._accounts.keys() >= {node for node in group if not node.done}
        if not all_told and now < self._asked + ANSWER_PATIENCE:
            return None
        accounts = sorted((one for told in self._accounts.values() for one in told), key=lambda one: one.rank)
        if works(accounts):
            self._asked, self._again = None, now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._accounts.clear()
            return None
        nobody = Cause(rank=0, step=0, text="hang: no rank moves, and no agent says why")
        return cause(accounts) if accounts else nobody

    def _withdraw(self) -> None:
        self._again, self._pause = float("-inf"), FIRST_PAUSE
        self._asked = None
        self._accounts.clear()
