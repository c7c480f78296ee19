"""This node's own hub, which stands by until the nodes of a round that has lost its hub come to it.

It is a thread of the agent, so it ends with it: a port that refuses shows others that the agent has ended. Node 0's is
a process, since the others wait for it while the agent still imports torch.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial

from kittrain.agent.rendezvous.announcer import announce
from kittrain.agent.rendezvous.hub_config import config_of, hub_of
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import NodeEnv
from kittrain.system import port
from kittrain.system.console import log


class OwnHub:
    """The hub of one agent.

    Args:
        node: this one.
        settings: timeouts.
        secret: of the run; None if it has none.
    """

    def __init__(self, node: NodeEnv, settings: RendezvousSettings, *, secret: bytes | None) -> None:
        self._node = node
        self._hub = hub_of(config_of(node, settings, secret=secret), partial(log, node.node_index))
        self._key = config_of(node, settings, secret=secret).key
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._elsewhere = ""
        self.node_index = node.node_index
        self.port = node.run.rendezvous_port if node.hosts_rendezvous else 0

    def listen(self, address: str) -> int:
        """Listen at this node's address, for as long as the agent lives; returns the port."""
        if not self.port:
            self._listener = port.listen(address, 0)
            self.port = int(self._listener.getsockname()[1])
        return self.port

    def stand_by(self, address: str) -> None:
        """Answer from now on; further calls do nothing. Other nodes reach this one at ``address``."""
        if self._listener and not self._loop:
            self._loop = asyncio.new_event_loop()
            self._loop.call_soon(self._hub.move, self._elsewhere)
            serve = self._serve(self._listener, f"{address}:{self.port}")
            threading.Thread(target=self._loop.run_until_complete, args=(serve,), name="hub", daemon=True).start()

    def move(self, elsewhere: str) -> None:
        """The agent is connected to this hub, ``address:port``; empty: to its own, or to none."""
        self._elsewhere = elsewhere
        if self._loop:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._hub.move, elsewhere)

    async def _serve(self, listener: socket.socket, address: str) -> None:
        run = self._node.run
        to = (run.rendezvous_host, run.rendezvous_port)
        await asyncio.gather(self._hub.serve(listener), announce(self._hub, self._key, to=to, address=address))
