"""Connects a node to the hub, and again after the connection is lost."""

from __future__ import annotations

from collections.abc import Callable

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousTimeoutError

from kittrain.agent.rendezvous.connection import Connection, Opened
from kittrain.agent.rendezvous.finding import Finder, LastRound
from kittrain.agent.rendezvous.handshake import Key
from kittrain.agent.rendezvous.hub_rendezvous import HubRendezvous
from kittrain.agent.rendezvous.messages import Hello
from kittrain.agent.rendezvous.own_hub import OwnHub
from kittrain.agent.rendezvous.rank_store import RankStore
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import NodeEnv


class HubBackend:
    """This node's way to the others, over one connection after another.

    Args:
        node: this one.
        settings: timeouts.
        started_at: when the agent started, in unix seconds.
        secret: of the run; None if it has none.
    """

    def __init__(self, node: NodeEnv, settings: RendezvousSettings, *, started_at: float, secret: bytes | None) -> None:
        self._node = node
        self._settings = settings
        self._started_at = started_at
        self._first = True
        self._own = OwnHub(node, settings, secret=secret)
        self._last = LastRound()
        self._finder = Finder(
            (node.run.rendezvous_host, node.run.rendezvous_port),
            Key(secret, node.run_id),
            settings=settings,
            last=self._last,
            nodes=node.job.all_nodes,
        )
        self._store = RankStore()

    @property
    def hosts(self) -> bool:
        """Whether the hub that this node is, or was, connected to is its own: it ends with the agent."""
        return self._last.hub_node == self._node.node_index

    def connect(self, *, deadline: float, waiting: Callable[[str], None] = lambda _: None) -> None:
        """Connect to the hub; the arguments are those of :meth:`Finder.find`.

        Raises:
            RendezvousError: it could not be reached in time.
        """
        try:
            found = self._finder.find(deadline=deadline, waiting=waiting)
        except TimeoutError as error:
            raise RendezvousTimeoutError(str(error)) from error
        self._take(found)

    def go(self, address: str) -> Connection:
        """Connect to the hub at ``address:port``, to which this node's last one has handed over.

        Raises:
            RendezvousConnectionError: it could not be reached.
        """
        self._own.move("")  # it may be this one
        found = self._finder.go(address)
        if found is None:
            raise RendezvousConnectionError(f"the hub at {address}, which takes over, cannot be reached")
        self._take(found)
        return self._connection

    def _take(self, found: Opened) -> None:
        self._connection = found.connection
        self._own.move("" if self.hosts else found.address)

    def handler(self, local_addr: str) -> HubRendezvous:
        """The rendezvous over this connection; other nodes reach this one at ``local_addr``."""
        node = self._node
        rendezvous = HubRendezvous(
            self._connection,
            self._settings,
            last=self._last,
            run_id=node.run_id,
            address=local_addr,
            store=self._store,
            own=self._own,
            go=self.go,
            hello=self._hello,
        )
        rendezvous.send(self._hello())
        return rendezvous

    def _hello(self) -> Hello:
        node, first = self._node, self._first
        self._first = False
        return Hello(node=node.node_index, started_at=self._started_at, first=first, pod=node.pod)
