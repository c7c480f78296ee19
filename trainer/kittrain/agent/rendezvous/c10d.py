"""Torch's own dynamic rendezvous over a TCPStore that node 0's agent hosts.

The store lives as long as node 0's agent. Every node, including node 0, connects as a client, so a rendezvous can start
over without losing the store.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout

from kitjob import typed
from kittrain.agent.rendezvous.backend import LOST, JobEnded, Rendezvous, RoundOver
from kittrain.agent.rendezvous.rank_store import host
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import NodeEnv
from kittrain.outcome.termination import Ending, as_fatal
from kittrain.system import port
from kittrain.torch_private.elastic import LeavableRendezvous

FAILED: Final = "kit/failed"  # key of the Ending that closed the rendezvous
LEAVE_TIMEOUT: Final = 5.0  # seconds to remove this node; without that its heartbeat would expire after five, too


class C10dRendezvous(LeavableRendezvous, Rendezvous):
    """Torch's handler. It notices a lost node only by failing ranks, so ``lost`` is set once the job has failed."""

    lost = False

    def next_rendezvous(self) -> RendezvousInfo:
        """See the base class.

        Raises:
            RendezvousConnectionError: nodes left while the round was formed, and too few remain.
        """
        try:
            self._info: RendezvousInfo = super().next_rendezvous()
        except RendezvousClosedError as error:
            raise self._failed() from error
        if self._info.world_size < self.settings.min_nodes:
            raise RendezvousConnectionError(f"only {self._info.world_size} node(s) were left as the round began")
        return self._info

    def num_nodes_waiting(self) -> int:
        """See the base class."""
        waiting: int = super().num_nodes_waiting()
        if self.was_closed:
            raise self._failed()
        return waiting

    def drain(self) -> None:
        """See the base class: the others notice when the ranks have ended."""

    def end_round(self, *, lost: bool) -> None:
        """See the base class: only nodes whose ranks have succeeded read it."""
        self._info.store.set("kit/over", f"the ranks of a node {'have failed' if lost else 'were asked to stop'}")

    def done(self, *, timeout: float) -> bool:
        """See the base class: checks the store once, then sleeps."""
        if self._info.store.check(["kit/over"]):
            raise RoundOver(self._info.store.get("kit/over").decode())
        self._info.store.set(f"kit/done/{self._info.rank}", "")
        everyone: bool = self._info.store.check([f"kit/done/{rank}" for rank in range(self._info.world_size)])
        if not everyone:
            time.sleep(timeout)
        return everyone

    def fail(self, ending: Ending, *, timeout: float) -> None:
        """See the base class: always waits, since it is unknown which nodes have read the failure."""
        self.store.set(FAILED, typed.dump(ending).decode())
        self.set_closed()
        time.sleep(timeout)

    def _failed(self) -> JobEnded:
        self.lost = True
        return JobEnded(as_fatal(typed.load(Ending, self.store.get(FAILED))))

    def leave(self) -> None:
        """Remove this node from the state at once; torch's ``shutdown()`` would close the rendezvous for all nodes."""
        with suppress(*LOST):
            self.remove_this_node(timeout=LEAVE_TIMEOUT)


class C10dBackend:
    """See ``kittrain.agent.rendezvous.backend.Backend``. On node 0 it hosts the store for as long as it lives.

    Raises:
        PortBusyError: another process uses the port.
    """

    def __init__(self, node: NodeEnv, settings: RendezvousSettings) -> None:
        self._node = node
        self._settings = settings
        self._store_host = host_store(node) if node.hosts_rendezvous else None

    def connect(self, *, deadline: float, waiting: Callable[[str], None] = lambda _: None) -> None:
        """See the protocol."""
        self._store = connect(self._node, self._settings, deadline=deadline, waiting=waiting)

    def handler(self, local_addr: str) -> C10dRendezvous:
        """See the protocol."""
        # Otherwise ranks use the first round's store, and a later node waits for keys that are not set again.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        settings = self._settings
        handler: C10dRendezvous = C10dRendezvous.from_backend(
            run_id=self._node.run_id,
            store=self._store,
            backend=C10dRendezvousBackend(self._store, self._node.run_id),
            min_nodes=self._node.job.min_nodes,
            max_nodes=self._node.job.max_nodes,
            local_addr=local_addr,
            timeout=RendezvousTimeout(
                join=timedelta(seconds=settings.join_timeout), last_call=timedelta(seconds=settings.last_call_timeout)
            ),
            **_keep_alive(settings),
        )
        return handler


def _keep_alive(settings: RendezvousSettings) -> dict[str, int]:
    """The keep-alive arguments that this torch accepts; in torch 2.6 they are fixed at 3 attempts every 5 seconds."""
    arguments = {
        "keep_alive_interval": settings.keep_alive_interval,
        "keep_alive_max_attempt": settings.keep_alive_max_attempt,
    }
    accepted = inspect.signature(C10dRendezvous.from_backend).parameters
    return {name: value for name, value in arguments.items() if name in accepted}


def host_store(node: NodeEnv) -> dist.TCPStore:
    """Host the store for as long as the returned object lives.

    Raises:
        PortBusyError: another process uses the port.
    """
    # Debian builds torch without libuv; one connection per node does not need it.
    return host(port.listen(node.run.rendezvous_host, node.run.rendezvous_port), libuv=False)


def connect(
    node: NodeEnv, settings: RendezvousSettings, *, deadline: float, waiting: Callable[[str], None] = lambda _: None
) -> dist.TCPStore:
    """Connect to the store; ``settings.read_timeout`` becomes its timeout. See :func:`kittrain.system.port.connect`.

    Raises:
        RendezvousTimeoutError: the store could not be reached in time.
    """
    address = (node.run.rendezvous_host, node.run.rendezvous_port)
    while True:
        # Torch waits for a store in C++, which blocks signal handlers; so check first that it is up.
        try:
            port.connect(*address, deadline=deadline, waiting=waiting).close()
            timeout = timedelta(seconds=settings.read_timeout)
            return dist.TCPStore(*address, is_master=False, wait_for_workers=False, timeout=timeout)
        except TimeoutError as error:
            raise RendezvousTimeoutError(str(error)) from error
        except dist.DistError:
            if time.monotonic() > deadline:
                raise
