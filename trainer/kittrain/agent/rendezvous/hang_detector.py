"""Decides whether a node is lost or a round hangs, from its agents' heartbeats: rules without clocks or sockets.

A node that sends nothing is lost, even if its kernel still answers. If all nodes with running ranks report them as
stalled, or one reports a frozen rank, the hub requests the stacks of all ranks and derives the cause from them. Ranks
that still make progress get more time.

Why: decision 13.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kittrain.agent.rendezvous.diagnosis import Diagnosis, RankStatus, diagnose, making_progress
from kittrain.agent.rendezvous.membership import Node

STACKS_TIMEOUT: Final = 5.0  # seconds for all stack reports
FIRST_RETRY_DELAY: Final = 15.0  # seconds until working ranks' stacks are requested again; doubles each time
MAX_RETRY_DELAY: Final = 120.0


class HangDetector:
    """State of the current round. ``now`` is in seconds of any monotonic clock.

    Args:
        heartbeat_timeout: seconds without a message after which a node with running ranks is lost.
        stop_timeout: additional seconds for a node that is stopping its ranks.
    """

    def __init__(self, *, heartbeat_timeout: float, stop_timeout: float) -> None:
        self._heartbeat_timeout = heartbeat_timeout
        self._stop_timeout = stop_timeout
        self._last_message: dict[Node, float] = {}
        self._stalled: set[Node] = set()
        self._frozen: set[Node] = set()
        self._requested_at: float | None = None
        self._retry_at = float("-inf")  # earliest time of the next request
        self._retry_delay = FIRST_RETRY_DELAY
        self._reports: dict[Node, Sequence[RankStatus]] = {}

    def record_message(self, node: Node, now: float) -> None:
        """A node has sent a message."""
        self._last_message[node] = now

    def begin(self, group: Iterable[Node], now: float) -> None:
        """A round was formed: its nodes send heartbeats from now on, which they did not while they waited for it."""
        self.reset()
        for node in group:
            self.record_message(node, now)

    def remove(self, node: Node) -> None:
        """A node is gone."""
        self._last_message.pop(node, None)
        self._stalled.discard(node)
        self._frozen.discard(node)

    def reset(self) -> None:
        """A round has ended."""
        self._stalled.clear()
        self._frozen.clear()
        self._clear_suspicion()

    def record_heartbeat(self, node: Node, *, stalled: bool, frozen: bool) -> None:
        """A node has reported whether all of its ranks are stalled, and whether one of them is frozen."""
        for nodes, reported in ((self._stalled, stalled), (self._frozen, frozen)):
            (nodes.add if reported else nodes.discard)(node)
        if not stalled and not self._frozen:
            self._clear_suspicion()

    def record_stacks(self, node: Node, statuses: Sequence[RankStatus]) -> None:
        """A node has reported the status of its ranks."""
        self._reports[node] = statuses

    def silent_nodes(self, nodes: Iterable[Node], now: float) -> list[Node]:
        """Those of the nodes whose heartbeat is overdue."""
        return [
            node
            for node in nodes
            if node.in_last_round and not node.ready and now > self._last_message[node] + self._timeout(node)
        ]

    def _timeout(self, node: Node) -> float:
        return self._heartbeat_timeout + (0.0 if node.active else self._stop_timeout)

    def should_request_stacks(self, group: Sequence[Node], now: float) -> bool:
        """Whether to request the stacks of all ranks now."""
        running = [node for node in group if not node.done]
        if self._requested_at is not None or now < self._retry_at:
            return False
        if not running or not (self._frozen or self._stalled.issuperset(running)):
            return False
        self._requested_at = now
        return True

    def diagnosis(self, group: Sequence[Node], now: float) -> Diagnosis | None:
        """The cause of a hang, once all stacks have arrived or the timeout is over; None if there is no hang."""
        if self._requested_at is None:
            return None
        complete = self._reports.keys() >= {node for node in group if not node.done}
        if not complete and now < self._requested_at + STACKS_TIMEOUT:
            return None
        statuses = sorted((one for report in self._reports.values() for one in report), key=lambda one: one.rank)
        if making_progress(statuses):
            self._requested_at, self._retry_at = None, now + self._retry_delay
            self._retry_delay = min(2 * self._retry_delay, MAX_RETRY_DELAY)
            self._reports.clear()
            return None
        unknown = Diagnosis(rank=0, step=0, text="hang: no rank moves, and no agent has reported why")
        return diagnose(statuses) if statuses else unknown

    def _clear_suspicion(self) -> None:
        self._retry_at, self._retry_delay = float("-inf"), FIRST_RETRY_DELAY
        self._requested_at = None
        self._reports.clear()
