"""A node's way to the hub, connection after connection."""

from __future__ import annotations

from collections.abc import Callable

from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

from kittrain.env import NodeEnv
from kittrain.rendezvous.connection import connect
from kittrain.rendezvous.handshake import Key
from kittrain.rendezvous.hub_rendezvous import HubRendezvous, Past
from kittrain.rendezvous.messages import Hello
from kittrain.rendezvous.rank_store import RankStore
from kittrain.rendezvous.settings import Knobs


class HubBackend:
    """See ``kittrain.rendezvous.backend.Backend``.

    Args:
        node: this one.
        knobs: times.
        born: when the agent began, in unix seconds.
        secret: of the run; None where it has none.
    """

    def __init__(self, node: NodeEnv, knobs: Knobs, *, born: float, secret: bytes | None) -> None:
        self._node = node
        self._knobs = knobs
        self._born = born
        self._key = Key(secret, node.run_id)
        self._past = Past()
        self._store = RankStore()

    def connect(self, *, deadline: float, waiting: Callable[[str], None] = lambda _: None) -> None:
        """See the protocol."""
        node, knobs = self._node, self._knobs
        try:
            self._connection = connect(
                (node.rendezvous_host, node.rendezvous_port),
                self._key,
                silence=(knobs.keep_alive_interval, knobs.keep_alive_max_attempt),
                nodes=node.max_nodes,
                deadline=deadline,
                waiting=waiting,
            )
        except TimeoutError as error:
            raise RendezvousTimeoutError(str(error)) from error

    def handler(self, local_addr: str) -> HubRendezvous:
        """See the protocol."""
        node = self._node
        rendezvous = HubRendezvous(
            self._connection, self._knobs, past=self._past, run=node.run_id, address=local_addr, store=self._store
        )
        rendezvous.say(Hello(node=node.node_index, born=self._born, pod=node.pod))
        return rendezvous
